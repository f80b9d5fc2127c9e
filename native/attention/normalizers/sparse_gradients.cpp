// Dot-product attention under entmax and sparsemax, backward: scores are recomputed, and lists keep the pairs with a weight; only
// these enter all later steps. Blocks of queries are distributed among threads; spans of them sum the gradients of keys and values
// separately, and these sums are added in order.
#include "attention/normalizers/blocks.hpp"
#include "attention/normalizers/support_lists.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// One thread's working memory in addition to its tiles: lists, each listed pair's gradient of its weight, (z - tau)^(p - 1), the factor of
// dropout and the slope of the softcap; a block's queries and upstream gradients as rows and transposed; the gradients of a vector of queries.
template <class T>
struct SparseWorkspace {
    T *lists, *gradients, *lower, *dropped, *slopes, *queries, *upstream, *query_columns, *upstream_columns, *d_queries;

    static Index size(Index keys, Index padded_dim, Index padded_value_dim) {
        return padded<T>(SupportLists<T>::size(keys)) + 4 * SupportLists<T>::capacity(keys) * WIDTH<T> +
               2 * QUERIES * (padded_dim + padded_value_dim) + WIDTH<T> * padded_dim;
    }
    SparseWorkspace(T* memory, Index keys, Index padded_dim, Index padded_value_dim)
        : lists(memory), gradients(lists + padded<T>(SupportLists<T>::size(keys))),
          lower(gradients + SupportLists<T>::capacity(keys) * WIDTH<T>), dropped(lower + SupportLists<T>::capacity(keys) * WIDTH<T>),
          slopes(dropped + SupportLists<T>::capacity(keys) * WIDTH<T>), queries(slopes + SupportLists<T>::capacity(keys) * WIDTH<T>),
          upstream(queries + QUERIES * padded_dim), query_columns(upstream + QUERIES * padded_value_dim),
          upstream_columns(query_columns + QUERIES * padded_dim), d_queries(upstream_columns + QUERIES * padded_value_dim) {}
};

template <class T>
class SparseBackward {
    static constexpr int W = WIDTH<T>;
    const Inputs& inputs;
    const Score& score;
    const double* alpha;
    const SavedDotForward& saved;
    const Gradients& to;
    bool overlapping;  // whether several queries share an element of the bias
    Team team;
    Index blocks, at_once, spans, padded_dim, padded_value_dim, keys_size, values_size, sums_size, workspace_size;
    DotTiles<T> source;
    Scratch<T> workspaces, keys, values, sums, biases;
    Scratch<int> finite;  // of an entry's keys

   public:
    SparseBackward(const Inputs& inputs, const Score& score, const double* alpha, const SavedDotForward& saved, const Gradients& to)
        : inputs(inputs), score(score), alpha(alpha), saved(saved), to(to),
          overlapping(to.bias && (inputs.bias.row == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, true),
          blocks(count(inputs.queries, QUERIES)), at_once(to.bias ? 1 : max_of<Index>(1, min_of<Index>(team.entries, 2 * team.threads))),
          spans(team.threads == 1 ? 1 : max_of<Index>(1, min_of(blocks, count(2 * team.threads, at_once)))),
          padded_dim(padded<T>(inputs.head_dim)), padded_value_dim(padded<T>(inputs.value_dim)),
          keys_size(GatheredRows<T>::size(inputs.key, inputs.head_dim, inputs.keys)),
          values_size(GatheredRows<T>::size(inputs.value, inputs.value_dim, inputs.keys)),
          sums_size(inputs.keys * (padded_dim + padded_value_dim)), workspace_size(0), source(inputs, score, at_once),
          workspaces(team.threads * (workspace_size = TileWorkspace<T>::size(inputs, source) +
                                                      SparseWorkspace<T>::size(inputs.keys, padded_dim, padded_value_dim))),
          keys(at_once * keys_size), values(at_once * values_size), sums(at_once * spans * sums_size),
          biases(overlapping ? spans * to.bias_size : 0), finite(at_once) {}

    void run() {
        clear(biases.data, overlapping ? spans * to.bias_size : 0);
        for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once) {
            Index entries = min_of(at_once, team.entries - entry);
            team.each(entries, [&](Index slot, int) { begin(slot, entry + slot); });
            team.each(entries * spans, [&](Index item, int thread) {
                with_power(1 / (alpha[entry + item / spans] - 1), [&](auto power) {
                    this->template span<decltype(power)>(entry + item / spans, item / spans, item % spans,
                                                         workspaces.data + thread * workspace_size);
                });
            });
            team.each(entries, [&](Index slot, int) { join(slot, entry + slot); });
        }
        for (Index span = 0; overlapping && span < spans; span++)
            add(biases.data + span * to.bias_size, to.bias_size, static_cast<T*>(to.bias));
    }

   private:
    GatheredRows<T> keys_of(Index slot, Index entry) const {
        return {inputs.key, inputs.head_dim, entry, keys.data + slot * keys_size};
    }
    GatheredRows<T> values_of(Index slot, Index entry) const {
        return {inputs.value, inputs.value_dim, entry, values.data + slot * values_size};
    }

    void begin(Index slot, Index entry) {
        for (Index key = 0; keys_size && key < inputs.keys; key++)
            GatheredRows<T>::copy(inputs.key, inputs.head_dim, entry, key, keys.data + slot * keys_size);
        for (Index key = 0; values_size && key < inputs.keys; key++)
            GatheredRows<T>::copy(inputs.value, inputs.value_dim, entry, key, values.data + slot * values_size);
        GatheredRows<T> rows = keys_of(slot, entry);
        bool all = true;
        for (Index key = 0; all && key < inputs.keys; key += KEYS)
            all = all_finite(rows.data + key * rows.row, rows.row, static_cast<int>(min_of<Index>(KEYS, inputs.keys - key)), padded_dim);
        finite.data[slot] = all;
    }

    // Shared by a block's vectors of queries.
    struct Block {
        Index entry, row, span;
        int rows;
        bool finite;
        GatheredRows<T> keys, values;
        T *d_keys, *d_values;
        T scale, slope_scale;
    };

    template <class Power>
    void span(Index entry, Index slot, Index span, T* memory) {
        SparseWorkspace<T> workspace(memory, inputs.keys, padded_dim, padded_value_dim);
        TileWorkspace<T> tiles(inputs, source, memory + workspace_size - TileWorkspace<T>::size(inputs, source));
        T* d_keys = sums.data + (slot * spans + span) * sums_size;
        clear(d_keys, sums_size);
        for (Index block = span; block < blocks && !interrupted(inputs); block += spans) {
            SupportLists<T> lists(workspace.lists, inputs.keys);
            TransposedMask<T> mask(inputs, entry, block);
            Block of{entry, mask.row, span, mask.rows, true, keys_of(slot, entry), values_of(slot, entry), d_keys,
                     d_keys + inputs.keys * padded_dim, static_cast<T>(score.scale[entry]), T(0)};
            of.finite = prepare(of, tiles.spare, workspace) && finite.data[slot];
            restore(of, lists);
            auto add = [&](const Tile& at, Coverage, int skipped) {
                for (int r = 0; r < at.rows; r += W) lists.append_known(tiles.scores + r, at, skipped + r, false);
            };
            tiles.each_tile(inputs, slot, mask, 0, inputs.keys, alpha[entry] - 1, add);
            for (int lane = 0; lane < mask.rows; lane += W) queries<Power>(of, lists, lane, workspace);
        }
    }

    // A block's queries and upstream gradients; whether all of them are finite.
    bool prepare(const Block& of, T* spare, const SparseWorkspace<T>& workspace) const {
        Tile at{of.entry, of.row, of.row, of.rows, of.rows};
        const Index zero = 0;
        Matrix up{static_cast<const T*>(saved.upstream) + (of.entry * inputs.queries + of.row) * inputs.value_dim, KIND<T>, &zero,
                  inputs.value_dim, 1};
        for (int r = 0; r < of.rows; r++) {
            T *query = workspace.queries + r * padded_dim, *upstream = workspace.upstream + r * padded_value_dim;
            read_row(inputs.query, of.entry, of.row + r, inputs.head_dim, query);
            read_row(up, 0, r, inputs.value_dim, upstream);
            for (Index d = inputs.head_dim; d < padded_dim; d++) query[d] = 0;
            for (Index e = inputs.value_dim; e < padded_value_dim; e++) upstream[e] = 0;
        }
        transpose(workspace.upstream, padded_value_dim, at.rows, inputs.value_dim, workspace.upstream_columns, Index{QUERIES});
        if (score.softcap > 0)
            transpose(workspace.queries, padded_dim, at.rows, inputs.head_dim, workspace.query_columns, Index{QUERIES},
                      static_cast<T>(score.scale[of.entry] / score.softcap));
        (void)spare;
        return all_finite(workspace.queries, padded_dim, of.rows, padded_dim) &&
               all_finite(workspace.upstream, padded_value_dim, of.rows, padded_value_dim);
    }

    // The rows' largest scores and thresholds.
    void restore(const Block& of, SupportLists<T>& lists) const {
        lists.clear(of.rows);
        const T* rows = static_cast<const T*>(saved.sums) + (of.entry * inputs.queries + of.row) * SPARSE_SUMS;
        for (int r = 0; r < of.rows; r++, rows += SPARSE_SUMS) lists.largest[r] = rows[0], lists.bound[r] = rows[1];
    }

    // One vector of queries.
    template <class Power>
    void queries(const Block& of, SupportLists<T>& lists, int lane, const SparseWorkspace<T>& workspace) {
        SupportList<T>& list = lists.lists[lane / W];
        int lanes = min_of(W, of.rows - lane);
        T power = static_cast<T>(1 / (alpha[of.entry] - 1));
        multiply_gathered_transposed(list.keys, list.count, of.values, workspace.upstream_columns + lane, inputs.value_dim,
                                     workspace.gradients);
        if (inputs.dropout > 0) {
            for (int i = 0; i < list.count * W; i++) workspace.dropped[i] = 1;
            apply_dropout_gathered(inputs, of.entry, of.row + lane, lanes, list.keys, list.count, workspace.dropped);
            for (int i = 0; i < list.count * W; i += W)
                store(workspace.gradients + i, load(workspace.gradients + i) * load(workspace.dropped + i));
        }
        Vector<T> delta = weigh<Power>(of, lists, lane, lanes, power, workspace);
        for (int i = 0; i < list.count * W; i += W) {
            Vector<T> lower = load(workspace.lower + i), gradient = lower * (load(workspace.gradients + i) - delta);
            store(workspace.gradients + i, lower == T(0) ? lower : gradient);
        }
        if (to.bias) add_bias_gradients(of, list, lane, lanes, workspace.gradients);
        scale_gradients(of, list, lane, workspace);
        if (inputs.dropout > 0)
            for (int i = 0; i < list.count * W; i += W) store(list.scores + i, load(list.scores + i) * load(workspace.dropped + i));
        add_products(of, list, lane, lanes, workspace);
    }

    // z of a list become weights, in place; computes their (z - tau)^(p - 1). Returns the mean of the weights' gradients under the latter.
    template <class Power>
    Vector<T> weigh(const Block& of, SupportLists<T>& lists, int lane, int lanes, T power, const SparseWorkspace<T>& workspace) const {
        SupportList<T>& list = lists.lists[lane / W];
        Vector<T> from = lists.base(lane), tau = load(lists.bound + lane), lower_sum{}, lower_mean{}, mean{}, h_sum{}, h_mean{};
        for (int i = 0; i < list.count * W; i += W) {
            Vector<T> above = lane_max(Vector<T>{}, load(list.scores + i) - from - tau);
            Vector<T> lower = Power::template lower<T>(above, power - 1), weight = lower * above;
            Vector<T> gradient = load(workspace.gradients + i);
            gradient = lower == T(0) ? lower : gradient;
            store(list.scores + i, weight), store(workspace.lower + i, lower);
            lower_sum += lower, lower_mean += lower * gradient;
            if (!to.delta) continue;
            Vector<T> h = weight * binary_logarithm<T>(above) * (power * T(-1 / LOG2E));
            h = weight > T(0) ? h : Vector<T>{};
            mean += weight * gradient, h_sum += h, h_mean += h * gradient;
        }
        Vector<T> delta = lower_sum == T(0) ? Vector<T>{} : lower_mean / lower_sum;
        T unit = static_cast<T>(alpha[of.entry] - 1);
        Vector<T> of_alpha = ((mean - delta) / unit + h_mean - delta * h_sum) / unit;
        of_alpha = lower_sum == T(0) ? Vector<T>{} : of_alpha;
        for (int r = 0; to.delta && r < lanes; r++)
            static_cast<T*>(to.delta)[of.entry * inputs.queries + of.row + lane + r] = of_alpha[r];
        return delta;
    }

    void add_bias_gradients(const Block& of, const SupportList<T>& list, int lane, int lanes, const T* gradients) {
        const Matrix& bias = inputs.bias;
        T* into = overlapping ? biases.data + of.span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.offsets[of.entry] + (of.row + lane) * bias.row;
        for (int n = 0; n < list.count; n++)
            for (int r = 0; r < lanes; r++) into[r * bias.row + list.keys[n] * bias.column] += gradients[n * W + r];
    }

    // From gradients of scores to gradients of products of queries and keys.
    void scale_gradients(const Block& of, const SupportList<T>& list, int lane, const SparseWorkspace<T>& workspace) const {
        if (score.softcap > 0)
            multiply_gathered_transposed(list.keys, list.count, of.keys, workspace.query_columns + lane, inputs.head_dim,
                                         workspace.slopes);
        for (int i = 0; i < list.count * W; i += W) {
            Vector<T> gradient = load(workspace.gradients + i), scaled = gradient * of.scale;
            if (score.softcap > 0) {
                Vector<T> capped = hyperbolic_tangent<T>(load(workspace.slopes + i));
                scaled = gradient == T(0) ? gradient : scaled * (1 - capped * capped);
            }
            store(workspace.gradients + i, scaled);
        }
    }

    void add_products(const Block& of, const SupportList<T>& list, int lane, int lanes, const SparseWorkspace<T>& workspace) const {
        const T *upstream = workspace.upstream + lane * padded_value_dim, *queries = workspace.queries + lane * padded_dim;
        clear(workspace.d_queries, lanes * padded_dim);
        if (of.finite) {
            multiply_scattered(list.scores, list.keys, list.count, upstream, padded_value_dim, lanes, padded_value_dim, of.d_values);
            multiply_scattered(workspace.gradients, list.keys, list.count, queries, padded_dim, lanes, padded_dim, of.d_keys);
            multiply_gathered(workspace.gradients, list.keys, list.count, of.keys, padded_dim, workspace.d_queries, lanes);
        }
        // Pair by pair if a number is not finite, skipping pairs without a weight: 0 * NaN is NaN.
        for (int n = 0; !of.finite && n < list.count; n++)
            for (int r = 0; r < lanes; r++) {
                int i = n * W + r;
                if (workspace.lower[i] == 0) continue;
                accumulate_keys<T, 1>(list.scores + i, upstream + r * padded_value_dim, 0, padded_value_dim,
                                      of.d_values + list.keys[n] * padded_value_dim);
                accumulate_keys<T, 1>(workspace.gradients + i, queries + r * padded_dim, 0, padded_dim,
                                      of.d_keys + list.keys[n] * padded_dim);
                accumulate_keys<T, 1>(workspace.gradients + i, of.keys.data + list.keys[n] * of.keys.row, 0, padded_dim,
                                      workspace.d_queries + r * padded_dim);
            }
        for (int r = 0; r < lanes; r++)
            put_row(workspace.d_queries + r * padded_dim, T(1), inputs.head_dim,
                    result_row<T>(to.query, of.entry, of.row + lane + r, inputs.queries, inputs.head_dim));
    }

    void join(Index slot, Index entry) const {
        T* total = sums.data + slot * spans * sums_size;
        for (Index span = 1; span < spans; span++) add(total + span * sums_size, sums_size, total);
        for (Index key = 0; key < inputs.keys; key++) {
            put_row(total + key * padded_dim, T(1), inputs.head_dim, result_row<T>(to.key, entry, key, inputs.keys, inputs.head_dim));
            put_row(total + inputs.keys * padded_dim + key * padded_value_dim, T(1), inputs.value_dim,
                    result_row<T>(to.value, entry, key, inputs.keys, inputs.value_dim));
        }
    }
};

}  // namespace

template <class T>
void sparse_dot_gradients(const Inputs& inputs, const Score& score, const double* alpha, const SavedDotForward& saved,
                          const Gradients& to) {
    SparseBackward<T>(inputs, score, alpha, saved, to).run();
}

template void sparse_dot_gradients<float>(const Inputs&, const Score&, const double*, const SavedDotForward&, const Gradients&);
template void sparse_dot_gradients<double>(const Inputs&, const Score&, const double*, const SavedDotForward&, const Gradients&);

}  // namespace overt::OVERT_LEVEL
