// Rows of keys and values during decoding: each is read once, in the caller's memory and number type, while the next tile is prefetched.
//
// A reader loads one vector of memory and returns its numbers as vectors of T. Operands of its rows are packed in the reader's order.
#pragma once

#include "attention/tiles/softmax.hpp"

namespace overt::OVERT_LEVEL {

enum class Layout { copied, whole, pairs, halves, codes };

#ifdef OVERT_SMALL
constexpr bool READS_IN_PLACE = false;
#else
constexpr bool READS_IN_PLACE = true;
#endif

template <class T>
struct WholeReader {
    using Number = T;
    static constexpr int VECTORS = 1;
    OVERT_INLINE void read(const Number* from, Vector<T>* to) { to[0] = load(from); }
};

// A bfloat16 is the upper half of a float32: read as float32, a vector of them holds its odd features; shifted by 16 bits, the even ones.
struct PairReader {
    using Number = std::uint16_t;
    static constexpr int VECTORS = 2;
    OVERT_INLINE void read(const Number* from, Vector<float>* to) {
        Bits<float> both = (Bits<float>)load(reinterpret_cast<const float*>(from));
        to[0] = (Vector<float>)(both << 16), to[1] = (Vector<float>)(both & 0xffff0000u);
    }
};

#if defined(__F16C__)
struct HalfReader {
    using Number = std::uint16_t;
    static constexpr int VECTORS = 1;
    OVERT_INLINE void read(const Number* from, Vector<float>* to) {
#if OVERT_BYTES == 64 && defined(__AVX512F__)
        to[0] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
        copy_float16(from, WIDTH<float>, reinterpret_cast<float*>(to));
#endif
    }
};
#endif

// Codes of a rounded cache, before their scale.
struct CodeReader {
    using Number = std::int8_t;
    static constexpr int VECTORS = 1;
    OVERT_INLINE void read(const Number* from, Vector<float>* to) {
#if OVERT_BYTES == 64 && defined(__AVX512F__)
        to[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif OVERT_BYTES == 32 && defined(__AVX2__)
        to[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
        copy_numbers(from, WIDTH<float>, reinterpret_cast<float*>(to));
#endif
    }
};

// How rows with this many columns are read: in place if they are whole vectors of memory, else as a copy.
template <class T>
static inline Layout layout_of(const Matrix& matrix, Index columns) {
    if (!READS_IN_PLACE) return Layout::copied;
    if (matrix.kind == KIND<T> && columns % WIDTH<T> == 0) return Layout::whole;
    if (sizeof(T) == 4 && matrix.kind == Kind::bfloat16 && columns % (2 * WIDTH<T>) == 0) return Layout::pairs;
    if (sizeof(T) == 4 && matrix.kind == Kind::int8 && columns % WIDTH<T> == 0) return Layout::codes;
#if defined(__F16C__)
    if (sizeof(T) == 4 && matrix.kind == Kind::float16 && columns % WIDTH<T> == 0) return Layout::halves;
#endif
    return Layout::copied;
}

// work(reader, the first row of an entry) for a layout that is read in place.
template <class T, class Work>
static inline void with_reader(Layout layout, const Matrix& matrix, Index start, Work work) {
    if (layout == Layout::whole) return work(WholeReader<T>(), static_cast<const T*>(matrix.data) + start);
    if constexpr (sizeof(T) == 4) {
        if (layout == Layout::codes) return work(CodeReader(), static_cast<const std::int8_t*>(matrix.data) + start);
        const std::uint16_t* halves = static_cast<const std::uint16_t*>(matrix.data) + start;
#if defined(__F16C__)
        if (layout == Layout::halves) return work(HalfReader(), halves);
#endif
        work(PairReader(), halves);
    }
}

// Reorders the features of a row for its reader, even ones of two vectors before odd ones; or back.
template <class T>
static inline void order_pairs(T* row, Index columns, bool back) {
    constexpr int W = WIDTH<T>;
    T both[2 * W];
    for (Index d = 0; d < columns; d += 2 * W, row += 2 * W) {
        for (int i = 0; i < 2 * W; i++) both[back ? i % W * 2 + i / W : i] = row[back ? i : i % W * 2 + i / W];
        for (int i = 0; i < 2 * W; i++) row[i] = both[i];
    }
}

// Prefetches rows into the second cache, as many bytes as are read meanwhile: from four parts of the next tile in turn,
// each in memory order, since a core has more requests in flight for several pages than for one.
class Ahead {
    const char* at;
    Index row_bytes, gap, left, part, turn = 0;  // left: bytes of this row
    static constexpr Index PAGE = 4096;

   public:
    template <class Number>
    Ahead(const Number* first, Index columns, Index row)
        : at(reinterpret_cast<const char*>(first)), row_bytes(columns * static_cast<Index>(sizeof(Number))),
          gap(row * static_cast<Index>(sizeof(Number)) - row_bytes), left(row_bytes),
          part(KEYS / 4 * row_bytes < PAGE ? 0 : KEYS / 4 * (row_bytes + gap)) {}

    template <int BYTES>
    OVERT_INLINE_MEMBER void fetch() {
        constexpr std::uintptr_t LINE = 64;
        if (BYTES >= static_cast<int>(LINE) || reinterpret_cast<std::uintptr_t>(at) % LINE < BYTES) __builtin_prefetch(at + turn, 0, 2);
        turn += part;
        if (turn != 4 * part) return;
        turn = 0, at += BYTES, left -= BYTES;
        if (left <= 0) at += gap, left = row_bytes;
    }
};

// The keys of a whole tile are read at four positions in turn: the processor itself prefetches at each of them.
constexpr int TURN = KEYS / 4;
OVERT_INLINE int in_turn(int i, int count, int whole) { return count == whole ? i % 4 * (whole / 4) + i / 4 : i; }

// Reorders a row of products from the order of reading to the order of the keys.
template <class T>
static inline void order_products(T* products) {
    T turns[KEYS];
    for (int c = 0; c < KEYS; c += WIDTH<T>) store(turns + c, load(products + c));
    for (int c = 0; c < TURN; c++)
        for (int i = 0; i < 4; i++) products[i * TURN + c] = turns[4 * c + i];
}

// products[r * KEYS + c] = rows r . keys c. The first rows that read a key prefetch.
template <class T, int ROW_COUNT, int N, bool FETCHES, class Reader>
static inline void read_dots_of(Reader, const T* rows, Index padded_dim, const typename Reader::Number* keys, Index key_row,
                                Ahead& ahead, T* products) {
    constexpr int W = WIDTH<T>, V = Reader::VECTORS;
    Ahead next = ahead;  // in registers
    Vector<T> sums[ROW_COUNT][N];
    unrolled<ROW_COUNT, N>([&](auto r, auto n) OVERT_UNROLLED { sums[r][n] = Vector<T>{}; });
    for (Index e = 0; e < padded_dim; e += V * W)
        unrolled<N>([&](auto n) OVERT_UNROLLED {
            Vector<T> parts[V];
            Reader::read(keys + n * key_row + e, parts);
            if (FETCHES) next.template fetch<V * W * sizeof(typename Reader::Number)>();
            unrolled<V, ROW_COUNT>([&](auto v, auto r) OVERT_UNROLLED {
                sums[r][n] = multiply_add(load(rows + r * padded_dim + e + v * W), parts[v], sums[r][n]);
            });
        });
    ahead = next;
    RowSums<T, ROW_COUNT, N>::of(sums, products, KEYS);
}

// The keys stay in the nearest cache for all rows.
template <class T, int N, class Reader>
static inline void read_dots_of_keys(Reader reader, const T* rows, Index padded_dim, const typename Reader::Number* keys,
                                     Index key_row, Ahead& ahead, int row_count, T* products) {
    constexpr int TOGETHER = OVERT_BYTES == 64 ? 4 : 2;  // as many independent sums as fit the registers
    if (row_count < TOGETHER) read_dots_of<T, 1, N, true>(reader, rows, padded_dim, keys, key_row, ahead, products);
    else read_dots_of<T, TOGETHER, N, true>(reader, rows, padded_dim, keys, key_row, ahead, products);
    int r = row_count < TOGETHER ? 1 : TOGETHER;
    for (; r + TOGETHER <= row_count; r += TOGETHER)
        read_dots_of<T, TOGETHER, N, false>(reader, rows + r * padded_dim, padded_dim, keys, key_row, ahead, products + r * KEYS);
    for (; r < row_count; r++)
        read_dots_of<T, 1, N, false>(reader, rows + r * padded_dim, padded_dim, keys, key_row, ahead, products + r * KEYS);
}

// `further`: the distance to the keys that come next, 0 if there are none.
template <class T, class Reader>
static void read_dots(Reader reader, const T* rows, Index padded_dim, const typename Reader::Number* keys, Index key_row,
                      Index further, int row_count, int count, T* products) {
    Ahead ahead(keys + further, padded_dim, key_row);
    int c = 0;
    if (count == KEYS) {
        for (; c < KEYS; c += 4)
            read_dots_of_keys<T, 4>(reader, rows, padded_dim, keys + c / 4 * key_row, TURN * key_row, ahead, row_count, products + c);
        for (int r = 0; r < row_count; r++) order_products(products + r * KEYS);
        return;
    }
    for (; c + 4 <= count; c += 4)
        read_dots_of_keys<T, 4>(reader, rows, padded_dim, keys + c * key_row, key_row, ahead, row_count, products + c);
    if (c < count && count >= 4) {  // the last four keys, some of them a second time: faster than one by one
        c = count - 4;
        read_dots_of_keys<T, 4>(reader, rows, padded_dim, keys + c * key_row, key_row, ahead, row_count, products + c);
        return;
    }
    for (; c < count; c++)
        read_dots_of_keys<T, 1>(reader, rows, padded_dim, keys + c * key_row, key_row, ahead, row_count, products + c);
}

// accumulator of some rows += weights . values, MEMORY vectors of memory at a time.
template <class T, int ROW_COUNT, int MEMORY, bool FETCHES, class Reader>
static inline void read_values_of(Reader, const T* weights, const typename Reader::Number* values, Index value_row, Ahead& ahead,
                                  int keys, Index padded_dim, T* accumulator) {
    constexpr int W = WIDTH<T>, V = Reader::VECTORS;
    Ahead next = ahead;  // in registers
    Vector<T> sums[ROW_COUNT][MEMORY * V];
    unrolled<ROW_COUNT, MEMORY * V>([&](auto r, auto v) OVERT_UNROLLED { sums[r][v] = Vector<T>{}; });
    for (int c = 0; c < keys; c++) {
        const int key = in_turn(c, keys, KEYS);
        Vector<T> parts[MEMORY * V];
        unrolled<MEMORY>([&](auto m) OVERT_UNROLLED {
            Reader::read(values + key * value_row + m * V * W, parts + m * V);
            if (FETCHES) next.template fetch<V * W * sizeof(typename Reader::Number)>();
        });
        unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED {
            Vector<T> weight = in_register<T>(broadcast(weights[r * KEYS + key]));
            unrolled<MEMORY * V>([&](auto v) OVERT_UNROLLED { sums[r][v] = multiply_add(weight, parts[v], sums[r][v]); });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT, MEMORY * V>([&](auto r, auto v) OVERT_UNROLLED {
        T* at = accumulator + r * padded_dim + v * W;
        store(at, load(at) + sums[r][v]);
    });
}

// Panels of this many vectors of memory, then narrower ones.
template <class T, int ROW_COUNT, int MEMORY, bool FETCHES, class Reader>
static inline void read_panels(Reader reader, const T* weights, const typename Reader::Number* values, Index value_row, Ahead& ahead,
                               int keys, Index padded_dim, T* accumulator) {
    constexpr int STEP = MEMORY * Reader::VECTORS * WIDTH<T>;
    Index e = 0;
    for (; e + STEP <= padded_dim; e += STEP)
        read_values_of<T, ROW_COUNT, MEMORY, FETCHES>(reader, weights, values + e, value_row, ahead, keys, padded_dim,
                                                      accumulator + e);
    if constexpr (MEMORY > 1)
        if (e < padded_dim)
            for (int r = 0; r < ROW_COUNT; r++)
                read_panels<T, 1, MEMORY / 2, FETCHES>(reader, weights + r * KEYS, values + e, value_row, ahead, keys,
                                                       padded_dim - e, accumulator + r * padded_dim + e);
}

template <int N>
struct RowCount {
    static constexpr int COUNT = N;
};

// accumulator (rows x padded_dim) += weights (rows x KEYS) . values, all of them visible.
template <class T, class Reader>
static void read_values(Reader reader, const T* weights, const typename Reader::Number* values, Index value_row, Index further,
                        int row_count, int keys, Index padded_dim, T* accumulator) {
    Ahead ahead(values + further, padded_dim, value_row);
    int r = 0;
    auto some = [&](auto size) {
        // One row has few sums, which wait for each other unless there are more vectors.
        constexpr int COUNT = decltype(size)::COUNT, MEMORY = (COUNT == 1 ? 8 : WIDEST) / Reader::VECTORS;
        for (; r + COUNT <= row_count; r += COUNT)
            if (r == 0)
                read_panels<T, COUNT, MEMORY, true>(reader, weights, values, value_row, ahead, keys, padded_dim, accumulator);
            else
                read_panels<T, COUNT, MEMORY, false>(reader, weights + r * KEYS, values, value_row, ahead, keys, padded_dim,
                                                     accumulator + r * padded_dim);
    };
    some(RowCount<4>()), some(RowCount<1>());
}

}  // namespace overt::OVERT_LEVEL
