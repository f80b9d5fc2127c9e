// Attention with a program's scores, backward, under any normalizer.
#include "attention/gradients/row_normalizer.hpp"
#include "attention/programs/traced_backward.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

template <class T>
class TracedGradients : public TracedBackward<T, TracedGradients<T>> {
    using Driver = TracedBackward<T, TracedGradients<T>>;
    using Driver::inputs, Driver::saved, Driver::score, Driver::to;
    RowNormalizer<T> normalizer;

   public:
    TracedGradients(const Inputs& inputs, const Score& score, const Normalization& by, const SavedDotForward& saved, const Gradients& to)
        : Driver(inputs, score, saved, to), normalizer(inputs, by) {}

    // The saved numbers of a row, from which weights are computed: under a softmax 2^(t - base) * inverse_sum, else see SavedRow.
    void put_rows(Index entry, Index start, const WholeRows<T>& upstream, QueryBlock<T>& now) const {
        if (!normalizer.is_softmax()) return put_saved_rows(entry, now);
        const T* sums = static_cast<const T*>(saved.sums) + 2 * entry * inputs.queries + now.mask.row;
        for (int r = 0; r < QUERIES; r++) {
            bool there = r < now.mask.rows;
            const T* out = static_cast<const T*>(saved.output) + (start + r) * inputs.value_dim;
            T total = there ? sums[inputs.queries + r] : T(0), delta = 0;
            for (Index e = 0; there && e < inputs.value_dim; e++) delta += out[e] * upstream.data[r * upstream.row + e];
            now.bases[r] = total == 0 ? T(0) : sums[r];
            now.inverse_sums[r] = total == 0 ? T(0) : 1 / total;
            now.deltas[r] = delta;
            if (there && to.delta) static_cast<T*>(to.delta)[start + r] = delta;
        }
    }

    Units<T> units_of(Index entry) const {
        return normalizer.is_softmax() ? Units<T>(inputs, score, entry) : Units<T>(score, entry, normalizer.unit(entry));
    }

    void finish(const Part<T>& part, bool careful, const QueryBlock<T>& query_block, const Workspace<T>& workspace) const {
        finish_transposed_scores(inputs, units_of(part.at.entry), part.at, part.coverage, query_block.mask, workspace.allowed,
                                 workspace.weights, workspace.spare);
        back_through_normalizer(part, careful, query_block, workspace);
    }

   private:
    void put_saved_rows(Index entry, QueryBlock<T>& now) const {
        for (int r = 0; r < now.mask.rows; r++) {
            SavedRow<T> row = normalizer.row(entry, now.mask.row + r, {saved.output, saved.sums, saved.upstream});
            now.bases[r] = row.first, now.inverse_sums[r] = row.second, now.deltas[r] = row.delta;
            if (to.delta) static_cast<T*>(to.delta)[entry * inputs.queries + now.mask.row + r] = row.alpha_gradient;
        }
    }

    // Total scores become weights, and gradients of weights those of scores: slope * (gradient - delta) / temperature.
    void back_through_normalizer(const Part<T>& part, bool careful, const QueryBlock<T>& query_block, const Workspace<T>& workspace) const {
        constexpr T NEVER = -__builtin_inf();
        const Tile& at = part.at;
        T* dropout_factors = workspace.spare;
        if (inputs.dropout > 0) {
            each_vector<T>(at, [&](int i) { store(dropout_factors + i, broadcast(T(1))); });
            apply_dropout_transposed(inputs, at, dropout_factors);
        }
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            Vector<T> base = load(query_block.bases + part.skipped + r), delta = load(query_block.deltas + part.skipped + r);
            Vector<T> inverse_sum = load(query_block.inverse_sums + part.skipped + r);
            for (int c = 0; c < at.keys; c++) {
                int i = c * QUERIES + r;
                Vector<T> total = load(workspace.weights + i), gradient = load(workspace.gradients + i), weight, slope;
                if (normalizer.is_softmax()) {
                    weight = slope = power_of_two<T>(total - base) * inverse_sum;
                } else {
                    weight = total, normalizer.weigh(at.entry, base, inverse_sum, weight, slope);
                    if (careful) weight = total == NEVER ? Vector<T>{} : weight;
                }
                if (inputs.dropout > 0) {
                    Vector<T> factor = load(dropout_factors + i);
                    gradient = gradient * factor, store(workspace.weights + i, weight * factor);
                } else {
                    store(workspace.weights + i, weight);
                }
                gradient = slope * (gradient - delta);
                if (careful) Driver::put_unmasked(at, r, i, total, workspace);
                store(workspace.gradients + i, total == NEVER ? Vector<T>{} : gradient);
            }
        }
        if (inputs.inverse_temperature && inputs.inverse_temperature[at.entry] != 1) {
            T times = static_cast<T>(inputs.inverse_temperature[at.entry]);
            each_vector<T>(at, [&](int i) { store(workspace.gradients + i, load(workspace.gradients + i) * times); });
        }
    }
};

}  // namespace

template <class T>
void traced_gradients(const Inputs& inputs, const Score& score, const Normalization& by, const SavedDotForward& saved, const Gradients& to) {
    TracedGradients<T>(inputs, score, by, saved, to).run();
}

template void traced_gradients<float>(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);
template void traced_gradients<double>(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);

}  // namespace overt::OVERT_LEVEL
