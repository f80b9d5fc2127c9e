// Rows of bfloat16 keys and values where decoding reads them, multiplied in pairs by vdpbf16ps: half of the products, and no conversions.
#pragma once

#include <type_traits>

#include "attention/dot/decode_rows.hpp"

namespace overt::OVERT_LEVEL {

using Half = std::uint16_t;
constexpr int PAIR_VECTOR = 32;  // numbers of a vector of bfloat16

OVERT_INLINE __m512bh halves(const Half* from) { return (__m512bh)_mm512_loadu_si512(from); }

// A reader takes one vector of memory and gives the vectors of bfloat16 that are in it. `place` is where number i of them comes to lie.
struct HalfVectors {
    using Number = Half;
    static constexpr int VECTORS = 1;
    void read(const Number* from, __m512bh* to) const { to[0] = halves(from); }
    static int place(int i) { return i; }
};

// The bytes of the whole numbers from 0 to 127 as bfloat16, in which they are exact.
struct CodeBytes {
    std::uint8_t upper[128] = {}, lower[128] = {};
    constexpr CodeBytes() {
        for (int i = 1, power = 0; i < 128; i++) {
            power += i >= 2 << power;
            int bits = (127 + power) << 7 | (i << (7 - power) & 127);
            upper[i] = static_cast<std::uint8_t>(bits >> 8), lower[i] = static_cast<std::uint8_t>(bits & 255);
        }
    }
};
alignas(64) static constexpr CodeBytes CODE_BYTES;

// Codes from -127 to 127, whose bytes are looked up.
struct CodeVectors {
    using Number = std::int8_t;
    static constexpr int VECTORS = 2;
    __m512i upper[2], lower[2];

    CodeVectors() {
        for (int i = 0; i < 2; i++)
            upper[i] = _mm512_loadu_si512(CODE_BYTES.upper + 64 * i), lower[i] = _mm512_loadu_si512(CODE_BYTES.lower + 64 * i);
    }

    void read(const Number* from, __m512bh* to) const {
        constexpr int A_OR_B_AND_C = 0xf8;
        __m512i codes = _mm512_loadu_si512(from), sizes = _mm512_abs_epi8(codes);
        __m512i low = _mm512_permutex2var_epi8(lower[0], sizes, lower[1]), high = _mm512_permutex2var_epi8(upper[0], sizes, upper[1]);
        high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), A_OR_B_AND_C);
        to[0] = (__m512bh)_mm512_unpacklo_epi8(low, high), to[1] = (__m512bh)_mm512_unpackhi_epi8(low, high);
    }
    static int place(int i) { return i / 16 * 8 + i % 8 + i / 8 % 2 * 32; }
};

// products[r * KEYS + c] = row r . key c, for four keys; the first rows that read a key fetch. Rows lie as far apart as in float32.
template <int ROW_COUNT, bool FETCHES, class Reader>
static inline void pair_dots_of_four(const Reader& reader, const Half* rows, Index dim, const typename Reader::Number* keys, Index key_row,
                                     Ahead& ahead, float* products) {
    constexpr int V = Reader::VECTORS;
    Ahead next = ahead;  // in registers
    __m512 sums[ROW_COUNT][4];
    unrolled<ROW_COUNT, 4>([&](auto r, auto n) OVERT_UNROLLED { sums[r][n] = __m512{}; });
    for (Index e = 0; e < dim; e += V * PAIR_VECTOR) {
        __m512bh key[4][V];
        unrolled<4>([&](auto n) OVERT_UNROLLED {
            reader.read(keys + n * key_row + e, key[n]);
            if (FETCHES) next.fetch<64>();
        });
        unrolled<V, ROW_COUNT>([&](auto v, auto r) OVERT_UNROLLED {
            __m512bh row = halves(rows + r * 2 * dim + e + v * PAIR_VECTOR);
            unrolled<4>([&](auto n) OVERT_UNROLLED { sums[r][n] = _mm512_dpbf16_ps(sums[r][n], row, key[n][v]); });
        });
    }
    ahead = next;
    RowSums<float, ROW_COUNT, 4>::of(sums, products, KEYS);
}

template <class Reader>
static inline void pair_dots_of_one(const Reader& reader, const Half* rows, Index dim, const typename Reader::Number* key, int row_count,
                                    float* products) {
    constexpr int V = Reader::VECTORS;
    for (int r = 0; r < row_count; r++, rows += 2 * dim) {
        __m512 sums{};
        for (Index e = 0; e < dim; e += V * PAIR_VECTOR) {
            __m512bh parts[V];
            reader.read(key + e, parts);
            for (int v = 0; v < V; v++) sums = _mm512_dpbf16_ps(sums, halves(rows + e + v * PAIR_VECTOR), parts[v]);
        }
        products[r * KEYS] = _mm512_reduce_add_ps(sums);
    }
}

template <class Reader>
static void pair_dots(const Reader& reader, const Half* rows, Index dim, const typename Reader::Number* keys, Index key_row, Index further,
                      int row_count, int count, float* products) {
    Ahead ahead(keys + further, dim, key_row);
    int c = 0;
    for (; c + 4 <= count; c += 4) {
        const typename Reader::Number* four = keys + c * key_row;
        int r = 0;
        if (row_count >= 4) pair_dots_of_four<4, true>(reader, rows, dim, four, key_row, ahead, products + c), r = 4;
        else pair_dots_of_four<1, true>(reader, rows, dim, four, key_row, ahead, products + c), r = 1;
        for (; r + 4 <= row_count; r += 4)
            pair_dots_of_four<4, false>(reader, rows + r * 2 * dim, dim, four, key_row, ahead, products + r * KEYS + c);
        for (; r < row_count; r++)
            pair_dots_of_four<1, false>(reader, rows + r * 2 * dim, dim, four, key_row, ahead, products + r * KEYS + c);
    }
    for (; c < count; c++) pair_dots_of_one(reader, rows, dim, keys + c * key_row, row_count, products + c);
}

// Weights to pairs of rounded ones: a word of two consecutive keys.
static inline void pair_weights(const float* weights, int row_count, std::uint32_t* pairs) {
    for (int r = 0; r < row_count; r++, weights += KEYS, pairs += KEYS / 2)
        for (int c = 0; c < KEYS; c += PAIR_VECTOR)
            _mm512_storeu_si512(pairs + c / 2, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(weights + c + 16), _mm512_loadu_ps(weights + c)));
}

// accumulator of some rows += weights . values, MEMORY vectors of memory of them. Two keys' values are woven where they are read, so that
// sums have the order of the woven halves of lanes.
template <int ROW_COUNT, int MEMORY, bool FETCHES, class Reader>
static inline void pair_values_of(const Reader& reader, const std::uint32_t* weights, const typename Reader::Number* values, Index value_row,
                                  Ahead& ahead, int keys, Index padded_dim, float* accumulator) {
    constexpr int V = Reader::VECTORS, SUMS = 2 * V * MEMORY;
    Ahead next = ahead;  // in registers
    __m512 sums[ROW_COUNT][SUMS];
    unrolled<ROW_COUNT, SUMS>([&](auto r, auto v) OVERT_UNROLLED { sums[r][v] = __m512{}; });
    for (int c = 0; c < keys; c += 2, values += 2 * value_row) {
        __m512bh parts[SUMS];
        unrolled<MEMORY>([&](auto m) OVERT_UNROLLED {
            const typename Reader::Number* at = values + m * V * PAIR_VECTOR;
            __m512bh first[V], second[V] = {};
            reader.read(at, first);
            if (c + 1 < keys) reader.read(at + value_row, second);
            if (FETCHES) next.fetch<64>(), next.fetch<64>();
            unrolled<V>([&](auto v) OVERT_UNROLLED {
                __m512bh* woven = parts + 2 * (m * V + v);
                woven[0] = (__m512bh)_mm512_unpacklo_epi16((__m512i)first[v], (__m512i)second[v]);
                woven[1] = (__m512bh)_mm512_unpackhi_epi16((__m512i)first[v], (__m512i)second[v]);
            });
        });
        unrolled<ROW_COUNT>([&](auto r) OVERT_UNROLLED {
            __m512bh weight = (__m512bh)_mm512_set1_epi32(static_cast<int>(weights[r * KEYS / 2 + c / 2]));
            unrolled<SUMS>([&](auto v) OVERT_UNROLLED { sums[r][v] = _mm512_dpbf16_ps(sums[r][v], weight, parts[v]); });
        });
    }
    ahead = next;
    unrolled<ROW_COUNT, SUMS>([&](auto r, auto v) OVERT_UNROLLED {
        float* at = accumulator + r * padded_dim + v * 16;
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sums[r][v]));
    });
}

template <int ROW_COUNT, int MEMORY, bool FETCHES, class Reader>
static inline void pair_panels(const Reader& reader, const std::uint32_t* weights, const typename Reader::Number* values, Index value_row,
                               Ahead& ahead, int keys, Index padded_dim, Index first, float* accumulator) {
    constexpr Index STEP = MEMORY * Reader::VECTORS * PAIR_VECTOR;
    Index e = first;
    for (; e + STEP <= padded_dim; e += STEP)
        pair_values_of<ROW_COUNT, MEMORY, FETCHES>(reader, weights, values + e, value_row, ahead, keys, padded_dim, accumulator + e);
    if constexpr (MEMORY > 1)
        if (e < padded_dim)
            pair_panels<ROW_COUNT, MEMORY / 2, FETCHES>(reader, weights, values, value_row, ahead, keys, padded_dim, e, accumulator);
}

// accumulator (rows x padded_dim) += weights (rows x KEYS / 2 pairs) . values, all of which count.
template <class Reader>
static void pair_values(const Reader& reader, const std::uint32_t* weights, const typename Reader::Number* values, Index value_row,
                        Index further, int row_count, int keys, Index padded_dim, float* accumulator) {
    Ahead ahead(values + further, padded_dim, value_row);
    int r = 0;
    auto some = [&](auto size, auto memory) {
        constexpr int COUNT = decltype(size)::COUNT, MEMORY = decltype(memory)::COUNT / Reader::VECTORS;
        for (; r + COUNT <= row_count; r += COUNT) {
            const std::uint32_t* of_rows = weights + r * KEYS / 2;
            float* to = accumulator + r * padded_dim;
            if (r == 0) pair_panels<COUNT, MEMORY, true>(reader, of_rows, values, value_row, ahead, keys, padded_dim, 0, to);
            else pair_panels<COUNT, MEMORY, false>(reader, of_rows, values, value_row, ahead, keys, padded_dim, 0, to);
        }
    };
    // As many sums as hide the latency of a product, and few words of values for each.
    if constexpr (Reader::VECTORS == 1) some(RowCount<8>(), RowCount<1>());
    some(RowCount<4>(), RowCount<2>()), some(RowCount<1>(), RowCount<4>());
}

// A row of features in the order of the sums, or back: of each eight that a vector holds, four belong to the first sum and four to the second.
template <class Reader>
static void order_woven(float* row, Index columns, bool back) {
    constexpr int STEP = Reader::VECTORS * PAIR_VECTOR;
    float both[STEP];
    for (Index d = 0; d < columns; d += STEP, row += STEP) {
        for (int i = 0; i < STEP; i++) {
            int read = Reader::place(i), vector = read / PAIR_VECTOR, lane = read % PAIR_VECTOR;
            int place = vector * PAIR_VECTOR + lane / 8 * 4 + lane % 4 + lane / 4 % 2 * 16;
            both[back ? i : place] = row[back ? place : i];
        }
        for (int i = 0; i < STEP; i++) row[i] = both[i];
    }
}

// For DotDecode: rows of bfloat16, or of codes that bfloat16 queries attend to, are multiplied as they lie in memory, and weights are rounded.
struct PairProducts {
    static constexpr bool ENABLED = true;
    template <class Work>
    static void with_reader(Kind kind, Work work) {
        if (kind == Kind::int8) work(CodeVectors());
        else work(HalfVectors());
    }

    static bool serve(const Inputs& inputs) {
        const bool codes = inputs.key.kind == Kind::int8;
        const int step = codes ? 2 * PAIR_VECTOR : PAIR_VECTOR;
        return inputs.query.kind == Kind::bfloat16 && (codes || inputs.key.kind == Kind::bfloat16) && inputs.value.kind == inputs.key.kind &&
               inputs.head_dim % step == 0 && inputs.value_dim % step == 0;
    }

    // The rows of an entry, each at its place in float32, in the order in which keys are read.
    static void pack(const Inputs& inputs, Index entry, float* to) {
        const Matrix& query = inputs.query;
        const Half* from = static_cast<const Half*>(query.data) + query.offsets[entry];
        for (Index r = 0; r < inputs.queries; r++, from += query.row, to += inputs.head_dim)
            with_reader(inputs.key.kind, [&](const auto& reader) {
                constexpr int STEP = std::decay_t<decltype(reader)>::VECTORS * PAIR_VECTOR;
                Half* row = reinterpret_cast<Half*>(to);
                if (STEP == PAIR_VECTOR) __builtin_memcpy(row, from, static_cast<std::size_t>(inputs.head_dim) * sizeof(Half));
                else for (Index d = 0; d < inputs.head_dim; d++) row[d / STEP * STEP + reader.place(static_cast<int>(d % STEP))] = from[d];
            });
    }

    static void dots(const float* rows, const Inputs& inputs, Index start, Index following, int row_count, int count, float* scores) {
        const Matrix& key = inputs.key;
        with_reader(key.kind, [&](const auto& reader) {
            using Number = typename std::decay_t<decltype(reader)>::Number;
            pair_dots(reader, reinterpret_cast<const Half*>(rows), inputs.head_dim, static_cast<const Number*>(key.data) + start, key.row,
                      following * key.row, row_count, count, scores);
        });
    }

    // Weights as they are multiplied, and their sums.
    static void round(float* weights, int row_count, int keys, float* row_sum) {
        for (int r = 0; r < row_count; r++, weights += KEYS) {
            __m512 changes{};
            for (int c = 0; c < keys; c += 16) {
                __m512 weight = _mm512_loadu_ps(weights + c);
                __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(weight)), 16);
                _mm512_storeu_ps(weights + c, _mm512_castsi512_ps(bits));
                changes = _mm512_add_ps(changes, _mm512_sub_ps(_mm512_castsi512_ps(bits), weight));
            }
            row_sum[r] += _mm512_reduce_add_ps(changes);
        }
    }

    static void add_values(const float* weights, const Matrix& value, Index start, Index following, int row_count, int keys,
                           Index padded_dim, float* spare, float* accumulator) {
        std::uint32_t* pairs = reinterpret_cast<std::uint32_t*>(spare);
        pair_weights(weights, row_count, pairs);
        with_reader(value.kind, [&](const auto& reader) {
            using Number = typename std::decay_t<decltype(reader)>::Number;
            pair_values(reader, pairs, static_cast<const Number*>(value.data) + start, value.row, following * value.row, row_count, keys,
                        padded_dim, accumulator);
        });
    }

    static void order(float* row, const Inputs& inputs, bool back) {
        with_reader(inputs.value.kind, [&](const auto& reader) { order_woven<std::decay_t<decltype(reader)>>(row, inputs.value_dim, back); });
    }
};

}  // namespace overt::OVERT_LEVEL
