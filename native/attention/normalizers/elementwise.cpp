// Attention under a sigmoid or a sum, forward: transposed tiles of scores, their shares, values. Nothing of size Q x K is stored.
#include "attention/normalizers/elementwise.hpp"

#include "attention/dot/dot_decode.hpp"
#include "attention/normalizers/blocks.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Distributes the blocks of queries of some entries, and spans of keys if there are fewer blocks than threads.
template <class T, class Rule>
class ElementwiseForward {
    using State = ElementwiseState<T, Rule>;
    const Inputs& inputs;
    T *output, *sums;
    Team team;
    Index blocks, tiles, at_once, spans, state_size, workspace_size;
    TileSource<T>& source;
    Scratch<T> workspaces, partial;

   public:
    ElementwiseForward(const Inputs& inputs, const Team& team, Index at_once, TileSource<T>& source, T* output, T* sums)
        : inputs(inputs), output(output), sums(sums), team(team), blocks(count(inputs.queries, QUERIES)),
          tiles(count(inputs.keys, KEYS)), at_once(at_once), spans(spans_of()), state_size(State::size(inputs.value_dim)),
          workspace_size(TileWorkspace<T>::size(inputs, source) + 2 * state_size), source(source),
          workspaces(team.threads * workspace_size), partial(spans > 1 ? at_once * blocks * spans * state_size : 0) {}

    void run() {
        for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once) {
            Index entries = min_of(at_once, team.entries - entry), items = entries * blocks * spans;
            team.each(entries, [&](Index slot, int) { source.begin(slot, entry + slot); });
            // Several items at a time if there are many: each may be short. The last come first: under a causal mask they take longest.
            Index chunk = max_of<Index>(1, min_of(blocks, items / (32 * team.threads)));
            auto rows_of = [&](Index item, int thread) {
                rows(entry, items - 1 - item, workspaces.data + thread * workspace_size);
            };
            team.each(items, rows_of, chunk);
            if (spans > 1) team.each(entries * blocks, [&](Index item, int) { join(entry, item); });
        }
    }

   private:
    Index spans_of() const {
        Index items = max_of<Index>(at_once * blocks, 1);
        if (items < team.threads) return max_of<Index>(1, min_of(count(team.threads, items), tiles / 2));
        return items % team.threads && items < 2 * team.threads && tiles > 1 ? 2 : 1;
    }

    void rows(Index entry, Index item, T* memory) {
        Index slot = item / (blocks * spans), block = item / spans % blocks, span = item % spans;
        TileWorkspace<T> workspace(inputs, source, memory + 2 * state_size);
        TransposedMask<T> mask(inputs, entry + slot, block);
        SumsOfParts<T, State> parts(spans > 1 ? partial.data + item * state_size : memory, memory + state_size, inputs.value_dim,
                                    mask.rows);
        auto add = [&](const Tile& at, Coverage coverage, int skipped) {
            State& state = parts.next();
            elementwise_transposed(workspace.scores, at, coverage == Coverage::partial || inputs.bias.data, state, skipped);
            if (inputs.dropout > 0) apply_dropout_transposed(inputs, at, workspace.scores);
            accumulate_values_transposed(workspace.scores, at, coverage, mask, workspace.allowed,
                                         Values<T>(inputs, at, workspace.spare), state.padded_dim,
                                         state.accumulator + skipped * state.padded_dim);
        };
        workspace.each_tile(inputs, slot, mask, span * tiles / spans * KEYS, (span + 1) * tiles / spans * KEYS, Rule::UNIT, add);
        const State& state = parts.joined();
        if (spans == 1) finish(entry + slot, block, state);
    }

    // Combines the states of all spans of a block, in their order.
    void join(Index entry, Index item) {
        State all(partial.data + item * spans * state_size, inputs.value_dim);
        for (Index span = 1; span < spans; span++) {
            State next(partial.data + (item * spans + span) * state_size, inputs.value_dim);
            all.join(next, size_of(item % blocks, QUERIES, inputs.queries));
        }
        finish(entry + item / blocks, item % blocks, all);
    }

    void finish(Index entry, Index block, const State& state) {
        for (int r = 0; r < size_of(block, QUERIES, inputs.queries); r++)
            finish_row(state, r, inputs, entry, block * QUERIES + r, output, sums);
    }
};

template <class T, class Rule>
void elementwise_under(const Inputs& inputs, const Score& score, T* output, T* sums) {
    if (score.form == Form::dot && inputs.queries <= DECODE_QUERIES)
        return DotDecode<T, ElementwiseState<T, Rule>>(inputs, score, output, sums).run();
    Team team(inputs, true);
    Index at_once = entries_for_blocks(team, count(inputs.queries, QUERIES));
    with_score_tiles<T>(inputs, score, at_once, [&](TileSource<T>& source) {
        ElementwiseForward<T, Rule>(inputs, team, at_once, source, output, sums).run();
    });
}

}  // namespace

template <class T>
void elementwise(const Inputs& inputs, const Score& score, Normalizer normalizer, void* output, void* sums) {
    T *to = static_cast<T*>(output), *saved_sums = static_cast<T*>(sums);
    if (normalizer == Normalizer::sigmoid)
        elementwise_under<T, SigmoidRule>(inputs, score, to, saved_sums);
    else if (normalizer == Normalizer::sum)
        elementwise_under<T, SumRule>(inputs, score, to, saved_sums);
    else
        elementwise_under<T, IdentityRule>(inputs, score, to, saved_sums);
}

template void elementwise<float>(const Inputs&, const Score&, Normalizer, void*, void*);
template void elementwise<double>(const Inputs&, const Score&, Normalizer, void*, void*);

}  // namespace overt::OVERT_LEVEL
