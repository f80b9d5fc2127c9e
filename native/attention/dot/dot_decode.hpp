// Dot-product attention of a few queries against many keys, as in decoding. Reading keys and values takes the time, so they are read
// once for all heads that share them. Long sequences are split among threads.
#pragma once

#include "attention/dot/decode_rows.hpp"
#include "attention/scores/dot_scores.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// DECODE_QUERIES: with more queries, transposed tiles are faster.
constexpr Index DECODE_QUERIES = 8;

// How to convert a tile's scores to undivided weights, and to finish a row, with a normalizer's state.
template <class T>
static inline void weigh(T* scores, int rows, int keys, SoftmaxState<T>& running) {
    online_softmax(scores, rows, keys, running);
}
template <class T>
static inline void finish_row(SoftmaxState<T>& all, int r, const Inputs& inputs, Index entry, Index row, T* output, T* sums) {
    if (inputs.sink) all.add_sink(r, static_cast<T>(inputs.sink[entry]));
    T row_sum = all.row_sum[r], inverse_sum = row_sum == 0 ? T(0) : 1 / row_sum;
    save_sums(sums, inputs, entry, row, static_cast<T>(all.row_max[r] * LOG2E), row_sum);
    put_row(all.accumulator + r * all.padded_dim, inverse_sum, inputs.value_dim,
            output + (entry * inputs.queries + row) * inputs.value_dim);
}

// How a matrix unit multiplies rows in the caller's memory; the level's own kernels have none.
struct NoProducts {
    static constexpr bool ENABLED = false;
};

template <class T, class State = SoftmaxState<T>, class Products = NoProducts>
class DotDecode {
    const Inputs& inputs;
    const Score& score;
    T *output, *saved_sums;
    Index together, groups, padded_dim, spans, sums_size, workspace_size;
    int rows;  // rows of a group: the queries of its heads
    bool products, codes;
    Layout key_layout, value_layout;
    int threads;
    Scratch<T> workspaces, partial;

   public:
    DotDecode(const Inputs& inputs, const Score& score, T* output, T* saved_sums)
        : inputs(inputs), score(score), output(output), saved_sums(saved_sums), together(heads_together()),
          groups(together ? inputs.batch / together : 0), padded_dim(padded<T>(inputs.head_dim)), spans(spans_of()),
          sums_size(State::size(inputs.value_dim)), workspace_size(size_of_workspace()),
          rows(static_cast<int>(together * inputs.queries)), products(products_here()), codes(codes_here()),
          key_layout(layout_here(inputs.key, inputs.head_dim)),
          value_layout(layout_here(inputs.value, inputs.value_dim)), threads(Team(inputs, true).threads),
          workspaces(threads * workspace_size), partial(spans > 1 ? groups * spans * sums_size : 0) {}

    void run() {
        // Several items at a time if there are many: each may be short.
        Index items = groups * spans, chunk = max_of<Index>(1, items / (16 * threads));
        share_items(items, chunk, threads, [&](Index item, int thread) { attend(item, workspaces.data + thread * workspace_size); });
        if (spans > 1) divide_items(groups, threads, [&](Index group, int) { join(group); });
    }

   private:
    // How many consecutive heads share their keys and values in every entry, with at most a tile of queries together.
    Index heads_together() const {
        const Index *keys = inputs.key.offsets, *values = inputs.value.offsets;
        auto shared = [&](Index size) {
            for (Index b = 0; b < inputs.batch; b++)
                if (keys[b] != keys[b - b % size] || values[b] != values[b - b % size]) return false;
            return inputs.batch % size == 0;
        };
        Index size = inputs.batch ? 1 : 0;
        while (size && size < inputs.batch && keys[size] == keys[0] && values[size] == values[0]) size++;
        while (size > 1 && (size * inputs.queries > ROWS || !shared(size))) size--;
        return size;
    }

    // Enough items that threads finish at about the same time, each long enough to be worth combining.
    Index spans_of() const {
        constexpr Index MIN_KEYS = 256;
        Index wanted = groups ? count(4 * inputs.threads, groups) : 1;
        return inputs.threads == 1 ? 1 : max_of<Index>(1, min_of(wanted, inputs.keys / MIN_KEYS));
    }

    // One thread's working memory: queries, a tile of scores, rows of keys and values, the state twice, the mask of each head's tile.
    Index size_of_workspace() const {
        Index tiles_size = KEYS * (padded_dim + padded<T>(inputs.value_dim)), masks = masks_size() / static_cast<Index>(sizeof(T));
        return padded<T>(ROWS * padded_dim + ROWS * KEYS + tiles_size + 2 * sums_size + masks) + 64;
    }
    static Index masks_size() { return 2 * ROWS * KEYS; }

    void attend(Index item, T* workspace) {
        Index group = item / spans, span = item % spans, tiles = count(inputs.keys, KEYS);
        T *queries = workspace, *scores = queries + ROWS * padded_dim, *spare = scores + ROWS * KEYS;
        T* sums = spare + KEYS * (padded_dim + padded<T>(inputs.value_dim));
        std::uint8_t* allowed = reinterpret_cast<std::uint8_t*>(workspace + workspace_size) - masks_size();
        SumsOfParts<T, State> parts(spans > 1 ? partial.data + item * sums_size : sums, sums + sums_size, inputs.value_dim, rows);
        KeyRange range = range_of(group);
        for (Index head = 0; head < together; head++) pack(group * together + head, queries + head * inputs.queries * padded_dim);
        Index end = min_of(range.high, (span + 1) * tiles / spans * KEYS);
        Tile at{group * together, 0, max_of(range.low, span * tiles / spans * KEYS), rows, 0};
        for (; at.key < end && !interrupted(inputs); at.key += at.keys) {
            at.keys = static_cast<int>(min_of<Index>(KEYS, end - at.key));
            Coverage coverage =
                range.full_low <= at.key && at.key + at.keys <= range.full_high ? Coverage::full : coverage_of_group(at, allowed);
            if (coverage == Coverage::none) continue;
            Index following = at.key + at.keys < end ? at.keys : 0;
            if constexpr (Products::ENABLED)
                if (codes) {
                    Products::Codes::tile(queries, inputs, at, following, scores, parts.next());
                    continue;
                }
            score_keys(queries, at, following, spare, scores);
            multiply_keys(inputs.key_scale, at, scores);
            if (score.softcap > 0) apply_softcap(static_cast<T>(score.softcap), at.rows, at.keys, scores);
            for (Index head = 0; head < together; head++) {
                Tile head_tile{at.entry + head, 0, at.key, static_cast<int>(inputs.queries), at.keys};
                finish_scores(inputs, head_tile, coverage, allowed + head * inputs.queries * KEYS,
                              scores + head * inputs.queries * KEYS);
            }
            State& running = parts.next();
            weigh(scores, rows, at.keys, running);
            if constexpr (Products::ENABLED)
                if (products) Products::round(scores, rows, at.keys, running.row_sum);
            for (int r = 0; r < rows && inputs.dropout > 0; r++)
                apply_dropout(inputs, at.entry + r / inputs.queries, r % inputs.queries, at.key, at.keys, scores + r * KEYS);
            multiply_keys(inputs.value_scale, at, scores);
            add_values(scores, at, coverage, allowed, following, spare + KEYS * padded_dim, running);
        }
        State& sums_of_all = parts.joined();
        if (spans == 1) finish(group, sums_of_all);
    }

    // For a few float32 rows of a short sequence the processor's own prefetch is as fast.
    Layout layout_here(const Matrix& matrix, Index columns) const {
        constexpr Index SHORT = 2048;
        Layout layout = layout_of<T>(matrix, columns);
        return layout == Layout::whole && rows <= 2 && inputs.keys < SHORT ? Layout::copied : layout;
    }

    bool products_here() const {
        if constexpr (Products::ENABLED) return Products::serve(inputs);
        return false;
    }
    bool codes_here() const {
        if constexpr (Products::ENABLED) return Products::Codes::serve(inputs) && score.softcap == 0;
        return false;
    }

    static Index start_of(const Matrix& matrix, const Tile& at) { return matrix.offsets[at.entry] + at.key * matrix.row; }

    // `following`: the distance in keys to the next tile, 0 after the last.
    void score_keys(const T* queries, const Tile& at, Index following, T* spare, T* scores) const {
        if constexpr (Products::ENABLED)
            if (products) {
                Products::dots(queries, inputs, start_of(inputs.key, at), following, rows, at.keys, scores);
                for (int r = 0; r < rows; r++) {
                    Vector<T> scale = broadcast(static_cast<T>(score.scale[at.entry + r / inputs.queries]));
                    for (int c = 0; c < KEYS; c += WIDTH<T>) store(scores + r * KEYS + c, load(scores + r * KEYS + c) * scale);
                }
                return;
            }
        if (!READS_IN_PLACE || key_layout == Layout::copied)
            return dots(queries, padded_dim, WholeRows<T>(inputs.key, inputs.head_dim, at, spare), rows, at.keys, scores);
        with_reader<T>(key_layout, inputs.key, start_of(inputs.key, at), [&](auto reader, const auto* keys) {
            read_dots(reader, queries, padded_dim, keys, inputs.key.row, following * inputs.key.row, rows, at.keys, scores);
        });
    }

    // Multiplies a tile's numbers by the scale of each key.
    void multiply_keys(const Matrix& scale, const Tile& at, T* numbers) const {
        if (!READS_IN_PLACE || !scale.data) return;
        T scales[KEYS] = {};
        const float* from = static_cast<const float*>(scale.data) + scale.offsets[at.entry] + at.key * scale.row;
        for (int c = 0; c < at.keys; c++) scales[c] = static_cast<T>(from[c * scale.row]);
        for (int r = 0; r < rows; r++, numbers += KEYS)
            for (int c = 0; c < at.keys; c += WIDTH<T>) store(numbers + c, load(numbers + c) * load(scales + c));
    }

    // If a mask cuts the tile, values are copied and checked: they may be NaN.
    void add_values(const T* weights, const Tile& at, Coverage coverage, const std::uint8_t* allowed, Index following, T* spare,
                    State& running) const {
        if constexpr (Products::ENABLED)
            if (products && coverage == Coverage::full)
                return Products::add_values(weights, inputs.value, start_of(inputs.value, at), following, rows, at.keys, running.padded_dim,
                                            spare, running.accumulator);
        if (!READS_IN_PLACE || value_layout == Layout::copied || coverage == Coverage::partial) {
            Values<T> values(inputs, at, spare);
            for (int c = 0; c < at.keys; c++) order_values(spare + c * values.row, false);
            return accumulate_values(weights, at, coverage, allowed, values, running.padded_dim, running.accumulator);
        }
        with_reader<T>(value_layout, inputs.value, start_of(inputs.value, at), [&](auto reader, const auto* values) {
            read_values(reader, weights, values, inputs.value.row, following * inputs.value.row, rows, at.keys, running.padded_dim,
                        running.accumulator);
        });
    }

    // Reorders a row of values for the sums, or back.
    void order_values(T* row, bool back) const {
        if constexpr (Products::ENABLED)
            if (products) return Products::order(row, inputs, back);
        if (value_layout == Layout::pairs) order_pairs(row, inputs.value_dim, back);
    }

    // No query of the group attends to keys outside of low to high; all attend to those within full_low to full_high.
    struct KeyRange {
        Index low, high, full_low, full_high;
    };
    KeyRange range_of(Index group) const {
        KeyRange result{inputs.keys, 0, 0, inputs.keys};
        for (Index head = 0; head < together; head++) {
            Index entry = group * together + head, low, high;
            mask_span(inputs.mask, entry, 0, inputs.queries, inputs.keys, &low, &high);
            result.low = min_of(result.low, low), result.high = max_of(result.high, high);
            mask_core(inputs.mask, entry, 0, inputs.queries, inputs.keys, &low, &high);
            result.full_low = max_of(result.full_low, low), result.full_high = min_of(result.full_high, high);
        }
        return result;
    }

    // The coverage of a tile for all heads of the group; if it is partial, `allowed` holds 1 or 0 for each pair.
    Coverage coverage_of_group(const Tile& at, std::uint8_t* allowed) const {
        bool full = true, any = false;
        for (Index head = 0; head < together; head++) {
            std::uint8_t* pairs = allowed + head * inputs.queries * KEYS;
            Coverage coverage = coverage_of(inputs, {at.entry + head, 0, at.key, static_cast<int>(inputs.queries), at.keys}, pairs);
            full = full && coverage == Coverage::full, any = any || coverage != Coverage::none;
            for (Index i = 0; coverage != Coverage::partial && i < inputs.queries * KEYS; i++)
                pairs[i] = coverage == Coverage::full;
        }
        return full ? Coverage::full : any ? Coverage::partial : Coverage::none;
    }

    // Queries, scaled and padded to whole vectors.
    void pack(Index entry, T* to) const {
        T scale = static_cast<T>(score.scale[entry]);
        if constexpr (Products::ENABLED) {
            if (products) return Products::pack(inputs, entry, to);
            if (codes) return Products::Codes::pack(inputs, entry, score.scale[entry], to);
        }
        for (Index r = 0; r < inputs.queries; r++, to += padded_dim) {
            read_row(inputs.query, entry, r, inputs.head_dim, to);
            for (Index d = 0; d < padded_dim; d++) to[d] = d < inputs.head_dim ? to[d] * scale : T(0);
            if (key_layout == Layout::pairs) order_pairs(to, inputs.head_dim, false);
        }
    }

    // Combines the states of all spans, in their order.
    void join(Index group) {
        State all(partial.data + group * spans * sums_size, inputs.value_dim);
        for (Index span = 1; span < spans; span++) {
            State next(partial.data + (group * spans + span) * sums_size, inputs.value_dim);
            all.join(next, rows);
        }
        finish(group, all);
    }

    void finish(Index group, State& all) {
        for (int r = 0; r < rows; r++) {
            order_values(all.accumulator + r * all.padded_dim, true);
            finish_row(all, r, inputs, group * together + r / inputs.queries, r % inputs.queries, output, saved_sums);
        }
    }
};

}  // namespace overt::OVERT_LEVEL
