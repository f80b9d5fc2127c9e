// Statistics of attention weights in two passes over the keys of each block of queries; nothing of size Q x K is stored.
#include "attention/scores/dot_scores.hpp"
#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/summary/summary_block.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Splits the rows of each entry into parts of about equal work. The parts' sums are added in order, so that results do not depend on the
// scheduling of threads.
template <class T, class Scores>
class Summarizer {
    const Inputs& inputs;
    const Score& score;
    const Summary& to;
    const RowWeights<T>* row_weights;
    Team team;
    Index blocks, tiles, parts, query_size, key_size, scores_size, workspace_size, partial_size;
    Scratch<T> workspaces, packed, memory, partial;
    Scratch<typename KeyIds<T>::Id> ids;
    Scratch<T> columns;
    Scratch<Part<T>> all_parts;

   public:
    Summarizer(const Inputs& inputs, const Score& score, const Summary& to, const RowWeights<T>* row_weights)
        : inputs(inputs), score(score), to(to), row_weights(row_weights), team(inputs), blocks(count(inputs.queries, ROWS)),
          tiles(count(inputs.keys, KEYS)),
          parts(team.size == 1 ? 1 : max_of<Index>(min_of<Index>(blocks, 4 * team.size), 1)),
          query_size(Scores(inputs, score, nullptr).query_size()), key_size(Scores(inputs, score, nullptr).key_size()),
          scores_size(padded<T>(Scores::size(inputs))), workspace_size(SummaryWorkspace<T>::size(inputs, to, query_size)),
          partial_size(padded<T>(inputs.keys + (to.row_edges ? 2 * to.key_cells : 0))), workspaces(team.threads * workspace_size),
          packed(team.entry_groups * tiles * key_size), memory(team.entry_groups * scores_size),
          partial(team.entry_groups * (parts - 1) * partial_size), ids(team.entry_groups * KeyIds<T>::size(inputs, to)),
          columns(team.entry_groups * NarrowValues<T>::size(inputs, to)), all_parts(team.entry_groups * parts) {}

    void run() {
        team.each_entry([this](Index entry, int entry_group) { one(entry, entry_group); });
    }

   private:
    T* received_of(Index entry) const { return static_cast<T*>(to.received) + entry * inputs.keys; }

    MapRow<T> map_of(Index entry) const {
        Index first = entry * to.row_cells * to.key_cells;
        return {static_cast<T*>(to.map_mean) + first, static_cast<T*>(to.map_max) + first};
    }

    void one(Index entry, int entry_group) {
        Scores scores(inputs, score, memory.data + entry_group * scores_size);
        scores.begin(entry);
        T* keys = packed.data + entry_group * tiles * key_size;
        team.each(tiles, [&](Index tile, int) {
            scores.pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys), keys + tile * key_size);
        });
        KeyIds<T> key_ids(inputs, to, entry, ids.data + entry_group * KeyIds<T>::size(inputs, to));
        NarrowValues<T> values(inputs, to, entry, columns.data + entry_group * NarrowValues<T>::size(inputs, to));
        Part<T>* entry_parts = all_parts.data + entry_group * parts;
        prepare(entry, entry_parts, partial.data + entry_group * (parts - 1) * partial_size);
        team.each(parts, [&](Index which, int thread) {
            SummaryWorkspace<T> workspace(inputs, to, query_size,
                                          workspaces.data + (entry_group * team.size + thread) * workspace_size);
            Part<T> part = entry_parts[which];
            for (Index row = part.first; row < part.stop && !interrupted(inputs); row += ROWS) {
                Tile at{entry, row, 0, static_cast<int>(min_of<Index>(ROWS, part.stop - row)), 0};
                Block<T, Scores>(inputs, to, scores, keys, key_ids, values, workspace, part, row_weights, at).run();
            }
            entry_parts[which].alive = part.alive;
        });
        join(entry, entry_parts);
    }

    // The first part adds to the results themselves, the others to their own memory.
    void prepare(Index entry, Part<T>* entry_parts, T* memory) const {
        for (Index part = 0; part < parts; part++) {
            T* received = part == 0 ? received_of(entry) : memory + (part - 1) * partial_size;
            T* cells = received + inputs.keys;
            entry_parts[part] = {0, 0, received, {cells, cells + to.key_cells}};
            for (Index j = 0; j < (part == 0 ? inputs.keys : partial_size); j++) received[j] = 0;
        }
        for (Index i = 0; to.row_edges && i < to.row_cells * to.key_cells; i++)
            map_of(entry).total[i] = map_of(entry).maximum[i] = 0;
        share(entry, entry_parts);
    }

    Index work_of(Index entry, Index block) const {
        Index low, high, first = block * ROWS;
        mask_span(inputs.mask, entry, first, min_of(first + ROWS, inputs.queries), inputs.keys, &low, &high);
        return high - low + KEYS;
    }

    void share(Index entry, Part<T>* entry_parts) const {
        Index work = 0, done = 0, part = 0;
        for (Index block = 0; parts > 1 && block < blocks; block++) work += work_of(entry, block);
        for (Index block = 0; parts > 1 && block < blocks; block++) {
            while (part + 1 < parts && done * parts >= work * (part + 1)) entry_parts[++part].first = block * ROWS;
            done += work_of(entry, block);
        }
        while (part + 1 < parts) entry_parts[++part].first = inputs.queries;
        for (part = 0; part < parts; part++)
            entry_parts[part].stop = part + 1 < parts ? entry_parts[part + 1].first : inputs.queries;
    }

    void join(Index entry, const Part<T>* entry_parts) const {
        Index alive = entry_parts[0].alive;
        for (Index part = 1; part < parts; part++) {
            alive += entry_parts[part].alive;
            for (Index j = 0; j < inputs.keys; j++) entry_parts[0].received[j] += entry_parts[part].received[j];
            if (to.row_edges && entry_parts[part].first < entry_parts[part].stop) join_cells(entry, entry_parts[part]);
        }
        for (Index j = 0; j < inputs.keys; j++) entry_parts[0].received[j] /= static_cast<T>(max_of<Index>(alive, 1));
        for (Index cell = 0; to.row_edges && cell < to.row_cells; cell++) average(entry, cell);
    }

    void join_cells(Index entry, const Part<T>& part) const {
        Index first = cell_of(to.row_edges, to.row_cells, part.first) * to.key_cells;
        MapRow<T> map = map_of(entry);
        for (Index c = 0; c < to.key_cells; c++) {
            map.total[first + c] += part.entered.total[c];
            map.maximum[first + c] = max_or_nan(map.maximum[first + c], part.entered.maximum[c]);
        }
    }

    // From sums to means over the cells of a row.
    void average(Index entry, Index cell) const {
        T* row = map_of(entry).total + cell * to.key_cells;
        Index height = to.row_edges[cell + 1] - to.row_edges[cell];
        for (Index c = 0; c < to.key_cells; c++)
            row[c] /= static_cast<T>(max_of<Index>(height * (to.key_edges[c + 1] - to.key_edges[c]), 1));
    }
};

}  // namespace

template <class T>
void summary(const Inputs& inputs, const Score& score, const Summary& to) {
    with_row_weights<T>(inputs, to.by, to.sums, [&](const RowWeights<T>* weights) {
        if (score.form == Form::dot)
            Summarizer<T, DotScores<T>>(inputs, score, to, weights).run();
        else if (score.activation <= Activation::sigmoid)
            Summarizer<T, TanhScores<T>>(inputs, score, to, weights).run();
        else
            Summarizer<T, ReluScores<T>>(inputs, score, to, weights).run();
    });
}

template void summary<float>(const Inputs&, const Score&, const Summary&);
template void summary<double>(const Inputs&, const Score&, const Summary&);

}  // namespace overt::OVERT_LEVEL
