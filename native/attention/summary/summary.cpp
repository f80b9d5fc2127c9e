// Statistics of attention weights in two passes over the keys of each block of queries; nothing of size Q x K is kept.
#include "attention/scores/dot_scores.hpp"
#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/summary/summary_block.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Shares out the rows of each entry among parts of about equal work. What parts add up is joined in their order, so that results
// do not depend on who did what.
template <class T, class Scores>
class Summarizing {
    const Inputs& inputs;
    const Score& score;
    const Summary& to;
    Team team;
    Index blocks, tiles, parts, query_room, key_room, scores_room, desk_room, partial_room;
    Scratch<T> desks, packed, memory, partial;
    Scratch<Part<T>> all_parts;

   public:
    Summarizing(const Inputs& inputs, const Score& score, const Summary& to)
        : inputs(inputs), score(score), to(to), team(inputs), blocks(count(inputs.queries, ROWS)), tiles(count(inputs.keys, KEYS)),
          parts(team.size == 1 ? 1 : most<Index>(least<Index>(blocks, 4 * team.size), 1)),
          query_room(Scores(inputs, score, nullptr).query_room()), key_room(Scores(inputs, score, nullptr).key_room()),
          scores_room(padded<T>(Scores::room(inputs))), desk_room(Desk<T>::room(inputs, to, query_room)),
          partial_room(padded<T>(inputs.keys + (to.row_edges ? 2 * to.key_cells : 0))), desks(team.threads * desk_room),
          packed(team.crews * tiles * key_room), memory(team.crews * scores_room), partial(team.crews * (parts - 1) * partial_room),
          all_parts(team.crews * parts) {}

    void run() {
        team.each_entry([this](Index entry, int crew) { one(entry, crew); });
    }

   private:
    T* received_of(Index entry) const { return static_cast<T*>(to.received) + entry * inputs.keys; }

    MapRow<T> map_of(Index entry) const {
        Index first = entry * to.row_cells * to.key_cells;
        return {static_cast<T*>(to.map_mean) + first, static_cast<T*>(to.map_max) + first};
    }

    void one(Index entry, int crew) {
        Scores scores(inputs, score, memory.data + crew * scores_room);
        scores.begin(entry);
        T* keys = packed.data + crew * tiles * key_room;
        team.each(tiles, [&](Index tile, int) { scores.pack_keys(tile * KEYS, size_of(tile, KEYS, inputs.keys), keys + tile * key_room); });
        Part<T>* own = all_parts.data + crew * parts;
        prepare(entry, own, partial.data + crew * (parts - 1) * partial_room);
        team.each(parts, [&](Index which, int member) {
            Desk<T> desk(inputs, to, query_room, desks.data + (crew * team.size + member) * desk_room);
            Part<T> part = own[which];
            for (Index row = part.first; row < part.stop; row += ROWS) {
                Place at{entry, row, 0, static_cast<int>(least<Index>(ROWS, part.stop - row)), 0};
                Block<T, Scores>(inputs, to, scores, keys, desk, part, at).run();
            }
            own[which].alive = part.alive;
        });
        join(entry, own);
    }

    // The first part adds to the results themselves, the others to memory of their own.
    void prepare(Index entry, Part<T>* own, T* memory) const {
        for (Index part = 0; part < parts; part++) {
            T* received = part == 0 ? received_of(entry) : memory + (part - 1) * partial_room;
            T* cells = received + inputs.keys;
            own[part] = {0, 0, received, {cells, cells + to.key_cells}};
            for (Index j = 0; j < (part == 0 ? inputs.keys : partial_room); j++) received[j] = 0;
        }
        for (Index i = 0; to.row_edges && i < to.row_cells * to.key_cells; i++) map_of(entry).total[i] = map_of(entry).largest[i] = 0;
        share(entry, own);
    }

    Index work_of(Index entry, Index block) const {
        Index low, high, first = block * ROWS;
        mask_span(inputs.mask, entry, first, least(first + ROWS, inputs.queries), inputs.keys, &low, &high);
        return high - low + KEYS;
    }

    void share(Index entry, Part<T>* own) const {
        Index work = 0, done = 0, part = 0;
        for (Index block = 0; parts > 1 && block < blocks; block++) work += work_of(entry, block);
        for (Index block = 0; parts > 1 && block < blocks; block++) {
            while (part + 1 < parts && done * parts >= work * (part + 1)) own[++part].first = block * ROWS;
            done += work_of(entry, block);
        }
        while (part + 1 < parts) own[++part].first = inputs.queries;
        for (part = 0; part < parts; part++) own[part].stop = part + 1 < parts ? own[part + 1].first : inputs.queries;
    }

    void join(Index entry, const Part<T>* own) const {
        Index alive = own[0].alive;
        for (Index part = 1; part < parts; part++) {
            alive += own[part].alive;
            for (Index j = 0; j < inputs.keys; j++) own[0].received[j] += own[part].received[j];
            if (to.row_edges && own[part].first < own[part].stop) join_cells(entry, own[part]);
        }
        for (Index j = 0; j < inputs.keys; j++) own[0].received[j] /= static_cast<T>(most<Index>(alive, 1));
        for (Index cell = 0; to.row_edges && cell < to.row_cells; cell++) average(entry, cell);
    }

    void join_cells(Index entry, const Part<T>& part) const {
        Index first = cell_of(to.row_edges, to.row_cells, part.first) * to.key_cells;
        MapRow<T> map = map_of(entry);
        for (Index c = 0; c < to.key_cells; c++) {
            map.total[first + c] += part.entered.total[c];
            map.largest[first + c] = larger_or_nan(map.largest[first + c], part.entered.largest[c]);
        }
    }

    // From sums to means over the cells of a row.
    void average(Index entry, Index cell) const {
        T* row = map_of(entry).total + cell * to.key_cells;
        Index height = to.row_edges[cell + 1] - to.row_edges[cell];
        for (Index c = 0; c < to.key_cells; c++) row[c] /= static_cast<T>(most<Index>(height * (to.key_edges[c + 1] - to.key_edges[c]), 1));
    }
};

}  // namespace

template <class T>
void summary(const Inputs& inputs, const Score& score, const Summary& to) {
    if (score.form == Form::dot)
        Summarizing<T, DotScores<T>>(inputs, score, to).run();
    else if (score.activation <= Activation::sigmoid)
        Summarizing<T, SmoothScores<T>>(inputs, score, to).run();
    else
        Summarizing<T, RectifiedScores<T>>(inputs, score, to).run();
}

template void summary<float>(const Inputs&, const Score&, const Summary&);
template void summary<double>(const Inputs&, const Score&, const Summary&);

}  // namespace overt::OVERT_LEVEL
