// Attention under entmax and sparsemax, forward: lists keep the keys of transposed tiles that may have a weight; then thresholds,
// weights and values over the lists.
#include "attention/normalizers/blocks.hpp"
#include "attention/normalizers/support_lists.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

template <class T>
class SparseForward {
    static constexpr int W = WIDTH<T>;
    const Inputs& inputs;
    const double* alpha;
    T *output, *sums;
    bool moments;  // whether sums of u_j v_j and h_j v_j are saved, as for scores that are no dot products
    Team team;
    Index blocks, at_once, padded_dim, values_size, moments_size, workspace_size;
    TileSource<T>& source;
    Scratch<T> workspaces, values;
    Scratch<int> finite;  // of an entry's values

   public:
    SparseForward(const Inputs& inputs, const Score& score, const double* alpha, const Team& team, Index at_once, TileSource<T>& source,
                  T* output, T* sums)
        : inputs(inputs), alpha(alpha), output(output), sums(sums), moments(sums && score.form != Form::dot), team(team),
          blocks(count(inputs.queries, QUERIES)), at_once(at_once), padded_dim(padded<T>(inputs.value_dim)),
          values_size(GatheredRows<T>::size(inputs.value, inputs.value_dim, inputs.keys)),
          moments_size(moments ? 2 * SupportLists<T>::capacity(inputs.keys) * W : 0),
          workspace_size(TileWorkspace<T>::size(inputs, source) + padded<T>(SupportLists<T>::size(inputs.keys)) + W * padded_dim +
                         moments_size),
          source(source), workspaces(team.threads * workspace_size), values(at_once * values_size), finite(at_once) {}

    void run() {
        for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once) {
            Index entries = min_of(at_once, team.entries - entry), items = entries * blocks;
            team.each(entries, [&](Index slot, int) { begin(slot, entry + slot); });
            Index chunk = max_of<Index>(1, min_of(blocks, items / (32 * team.threads)));
            // The last blocks first: under a causal mask they are the longest.
            auto rows = [&](Index item, int thread) {
                Index back = items - 1 - item, slot = back / blocks;
                with_power(1 / (alpha[entry + slot] - 1), [&](auto power) {
                    this->template block<decltype(power)>(entry + slot, slot, back % blocks,
                                                          workspaces.data + thread * workspace_size);
                });
            };
            team.each(items, rows, chunk);
        }
    }

   private:
    GatheredRows<T> values_of(Index slot, Index entry) const {
        return {inputs.value, inputs.value_dim, entry, values.data + slot * values_size};
    }

    void begin(Index slot, Index entry) {
        source.begin(slot, entry);
        for (Index key = 0; values_size && key < inputs.keys; key++)
            GatheredRows<T>::copy(inputs.value, inputs.value_dim, entry, key, values.data + slot * values_size);
        GatheredRows<T> rows = values_of(slot, entry);
        bool all = true;
        for (Index key = 0; all && key < inputs.keys; key += KEYS)
            all = all_finite(rows.data + key * rows.row, rows.row, static_cast<int>(min_of<Index>(KEYS, inputs.keys - key)), padded_dim);
        finite.data[slot] = all;
    }

    // One block of queries against all keys. If a value is not finite, all keys stay in the lists: 0 * NaN is NaN.
    template <class Power>
    void block(Index entry, Index slot, Index block, T* memory) {
        TileWorkspace<T> workspace(inputs, source, memory + workspace_size - TileWorkspace<T>::size(inputs, source));
        T* accumulator = memory + padded<T>(SupportLists<T>::size(inputs.keys));
        SupportLists<T> lists(memory, inputs.keys);
        TransposedMask<T> mask(inputs, entry, block);
        bool every = !finite.data[slot];
        T power = static_cast<T>(1 / (alpha[entry] - 1));
        lists.clear(mask.rows);
        Index keys_read = 0, next = 2 * KEYS;
        auto add = [&](const Tile& at, Coverage, int skipped) {
            lists.append(workspace.scores, at, skipped, every);
            keys_read += at.keys;
            if (every || keys_read < next) return;
            next = 2 * keys_read;
            for (int lane = 0; lane < mask.rows; lane += W) lists.template approach<Power>(lane, power);
        };
        workspace.each_tile(inputs, slot, mask, 0, inputs.keys, alpha[entry] - 1, add);
        GatheredRows<T> rows = values_of(slot, entry);
        for (int lane = 0; lane < mask.rows; lane += W) {
            lists.template find_threshold<Power>(lane, power, !every);
            finish<Power>(lists, Queries{entry, mask.row + lane, lane, min_of(W, mask.rows - lane)}, power, every, rows, accumulator);
        }
    }

    // One vector of queries: query `row` of an entry, and `lanes` of them in all, is lane `lane` of its block.
    struct Queries {
        Index entry, row;
        int lane, lanes;
    };

    template <class Power>
    void finish(SupportLists<T>& lists, const Queries& of, T power, bool every, const GatheredRows<T>& rows, T* accumulator) {
        T *lower = moments ? accumulator + W * padded_dim : nullptr, *logarithms = lower + moments_size / 2, of_logarithms[W] = {};
        PowerSums<T> row_sums = lists.template weigh<Power>(of.lane, power, every, lower);
        SupportList<T>& list = lists.lists[of.lane / W];
        if (moments) store(of_logarithms, add_logarithms(list, logarithms));
        Vector<T> inverse = row_sums.total == T(0) ? Vector<T>{} : 1 / row_sums.total;
        add_values(of, list, list.scores, list.scores, every, rows, accumulator);
        for (int r = 0; r < of.lanes; r++) {
            Index row = of.entry * inputs.queries + of.row + r;
            put_row(accumulator + r * padded_dim, inverse[r], inputs.value_dim, output + row * inputs.value_dim);
            if (!sums) continue;
            T* saved = sums + row * (SPARSE_SUMS + (moments ? 2 * inputs.value_dim : 0));
            saved[0] = lists.largest[of.lane + r], saved[1] = lists.bound[of.lane + r];
            saved[2] = row_sums.lower[r], saved[3] = of_logarithms[r];
        }
        if (!moments) return;
        const T* factors[] = {lower, logarithms};
        for (int i = 0; i < 2; i++) {
            add_values(of, list, const_cast<T*>(factors[i]), list.scores, every, rows, accumulator);
            for (int r = 0; r < of.lanes; r++) {
                T* saved = sums + (of.entry * inputs.queries + of.row + r) * (SPARSE_SUMS + 2 * inputs.value_dim);
                put_row(accumulator + r * padded_dim, T(1), inputs.value_dim, saved + SPARSE_SUMS + i * inputs.value_dim);
            }
        }
    }

    // h = -weight log weight of a list, and its sums.
    static Vector<T> add_logarithms(const SupportList<T>& list, T* logarithms) {
        Vector<T> total{};
        for (int n = 0; n < list.count; n++) {
            Vector<T> weight = load(list.scores + n * W), h = weight * binary_logarithm<T>(weight) * T(-1 / LOG2E);
            h = weight > T(0) ? h : Vector<T>{};
            store(logarithms + n * W, h), total += h;
        }
        return total;
    }

    // accumulator (lanes x padded_dim) = sum_n factors_n * values_n after dropout.
    void add_values(const Queries& of, const SupportList<T>& list, T* factors, const T* weights, bool every, const GatheredRows<T>& rows,
                    T* accumulator) const {
        clear(accumulator, of.lanes * padded_dim);
        if (inputs.dropout > 0) apply_dropout_gathered(inputs, of.entry, of.row, of.lanes, list.keys, list.count, factors);
        if (!every) return multiply_gathered(factors, list.keys, list.count, rows, padded_dim, accumulator, of.lanes);
        for (int n = 0; n < list.count; n++)
            for (int r = 0; r < of.lanes; r++)
                if (!(weights[n * W + r] < 0))
                    accumulate_keys<T, 1>(factors + n * W + r, rows.data + list.keys[n] * rows.row, 0, padded_dim,
                                          accumulator + r * padded_dim);
    }
};

}  // namespace

template <class T>
void sparse(const Inputs& inputs, const Score& score, const double* alpha, void* output, void* sums) {
    Team team(inputs, true);
    Index at_once = entries_for_blocks(team, count(inputs.queries, QUERIES));
    with_score_tiles<T>(inputs, score, at_once, [&](TileSource<T>& source) {
        SparseForward<T>(inputs, score, alpha, team, at_once, source, static_cast<T*>(output), static_cast<T*>(sums)).run();
    });
}

template void sparse<float>(const Inputs&, const Score&, const double*, void*, void*);
template void sparse<double>(const Inputs&, const Score&, const double*, void*, void*);

}  // namespace overt::OVERT_LEVEL
