// Dot-product attention, backward: a tile's weights are computed again, just as in the forward pass, so that nothing of size Q x K is
// kept. Keys are shared out among threads; each adds to sums of its own for the queries, which are joined in order.
#include <new>

#include "attention/threads.hpp"
#include "attention/transposed_tile.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Blocks of queries whose numbers are held at once.
constexpr Index HELD_BLOCKS = 16;

// One thread's working memory: of a tile of keys, their rows, their values' rows and the sums for both; of a turned tile, weights (scores
// before), their gradients, what multiplies either, and a spare.
template <class T>
struct DotDesk {
    T *keys, *whole_keys, *values, *d_keys, *d_values, *weights, *gradients, *slopes, *kept, *spare;
    std::uint8_t* allowed;

    static Index room(Index wide, Index width) { return KEYS * (3 * wide + 2 * width) + 6 * TURNED_TILE + MASK_ROOM / 4 + 64; }
    DotDesk(T* memory, Index wide, Index width)
        : keys(memory), whole_keys(keys + KEYS * wide), values(whole_keys + KEYS * wide), d_keys(values + KEYS * width),
          d_values(d_keys + KEYS * wide), weights(d_values + KEYS * width), gradients(weights + TURNED_TILE),
          slopes(gradients + TURNED_TILE), kept(slopes + TURNED_TILE), spare(kept + TURNED_TILE),
          allowed(reinterpret_cast<std::uint8_t*>(spare + 2 * TURNED_TILE)) {}
};

// A block of queries as all threads read it.
template <class T>
struct DotBlock {
    TurnedMask<T> mask;
    T *queries, *upstream;                   // turned
    const T *whole_queries, *whole_upstream;  // rows in whole vectors
    Index query_row, upstream_row;
    bool finite;
    T bases[QUERIES], overs[QUERIES], deltas[QUERIES];
};

template <class T>
class DotBackward {
    const Inputs& inputs;
    const Score& score;
    const PassedDot& passed;
    const Gradients& to;
    bool overlapping;  // whether several pairs share a number of the bias
    Team team;
    Index wide, width, tiles, spans, blocks, block_room, desk_room;
    Scratch<T> desks, rows, d_queries, biases;
    Scratch<DotBlock<T>> table;

   public:
    DotBackward(const Inputs& inputs, const Score& score, const PassedDot& passed, const Gradients& to)
        : inputs(inputs), score(score), passed(passed), to(to),
          overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, to.bias),
          wide(padded<T>(inputs.features)), width(padded<T>(inputs.width)), tiles(count(inputs.keys, KEYS)),
          spans(most<Index>(1, least<Index>(team.size, tiles))), blocks(least(count(inputs.queries, QUERIES), HELD_BLOCKS)),
          block_room(2 * QUERIES * (wide + width)), desk_room(DotDesk<T>::room(wide, width)), desks(team.threads * desk_room),
          rows(team.crews * blocks * block_room), d_queries(team.crews * spans * blocks * QUERIES * wide),
          biases(overlapping ? spans * to.bias_size : 0), table(team.crews * blocks) {}

    void run() {
        clear(biases.data, overlapping ? spans * to.bias_size : 0);
        team.each_entry([this](Index entry, int crew) { one(entry, crew); });
        for (Index span = 0; overlapping && span < spans; span++)
            add(biases.data + span * to.bias_size, to.bias_size, static_cast<T*>(to.bias));
    }

   private:
    DotBlock<T>& block_of(int crew, Index block) const { return table.data[crew * blocks + block % blocks]; }
    T* sums_of(int crew, Index span, Index block) const {
        return d_queries.data + ((crew * spans + span) * blocks + block % blocks) * QUERIES * wide;
    }

    void one(Index entry, int crew) {
        Index all = count(inputs.queries, QUERIES), first = 0;
        do {
            Index held = least(blocks, all - first);
            team.each(held, [&](Index block, int) { prepare(entry, crew, first + block); });
            team.each(spans, [&](Index span, int member) {
                DotDesk<T> desk(desks.data + (crew * team.size + member) * desk_room, wide, width);
                against_keys(entry, crew, first, held, span, desk);
            });
            team.each(held, [&](Index block, int) { join(entry, crew, first + block); });
            first += held;
        } while (first < all);
    }

    // Lays out a block of queries and finds delta_i = sum_e output_ie upstream_ie.
    void prepare(Index entry, int crew, Index block) {
        T* memory = rows.data + (crew * blocks + block % blocks) * block_room;
        DotBlock<T>& own = *new (&block_of(crew, block)) DotBlock<T>{TurnedMask<T>(inputs, entry, block), memory, memory + QUERIES * wide,
                                                                     nullptr, nullptr, 0, 0, true, {}, {}, {}};
        Place at{entry, own.mask.row, own.mask.row, own.mask.rows, own.mask.rows};
        T* spare = own.upstream + QUERIES * width;
        turn_rows(inputs.query, at, inputs.features, Units<T>(inputs, score, entry).scale, own.queries, spare);
        WholeRows<T> queries(inputs.query, inputs.features, at, spare);
        own.whole_queries = queries.data, own.query_row = queries.row;
        const Index zero = 0, start = entry * inputs.queries + own.mask.row;
        at.entry = 0, at.row = at.key = 0;
        Matrix up{static_cast<const T*>(passed.upstream) + start * inputs.width, KIND<T>, &zero, inputs.width, 1};
        turn_rows(up, at, inputs.width, T(1), own.upstream, static_cast<T*>(nullptr));
        WholeRows<T> upstream(up, inputs.width, at, spare + QUERIES * wide);
        own.whole_upstream = upstream.data, own.upstream_row = upstream.row;
        if (inputs.mask.count || inputs.bias.data)
            own.finite = all_finite(queries.data, queries.row, own.mask.rows, wide) &&
                         all_finite(upstream.data, upstream.row, own.mask.rows, width);
        const T* sums = static_cast<const T*>(passed.sums) + 2 * entry * inputs.queries + own.mask.row;
        for (int r = 0; r < QUERIES; r++) {
            bool there = r < own.mask.rows;
            const T* out = static_cast<const T*>(passed.output) + (start + r) * inputs.width;
            T total = there ? sums[inputs.queries + r] : T(0), delta = 0;
            for (Index e = 0; there && e < inputs.width; e++) delta += out[e] * upstream.data[r * upstream.row + e];
            own.bases[r] = total == 0 ? T(0) : sums[r];
            own.overs[r] = total == 0 ? T(0) : 1 / total;
            own.deltas[r] = delta;
            if (there && to.delta) static_cast<T*>(to.delta)[start + r] = delta;
        }
    }

    // The blocks at hand against every `spans`-th tile of keys.
    void against_keys(Index entry, int crew, Index first, Index held, Index span, const DotDesk<T>& desk) {
        for (Index block = first; block < first + held; block++) clear(sums_of(crew, span, block), QUERIES * wide);
        for (Index tile = span; tile < tiles; tile += spans) {
            Place all{entry, 0, tile * KEYS, 0, size_of(tile, KEYS, inputs.keys)};
            clear(desk.d_keys, all.keys * wide), clear(desk.d_values, all.keys * width);
            Left<T> keys = rows_at(inputs.key, all, inputs.features, desk.keys);
            Left<T> values = rows_at(inputs.value, all, inputs.width, desk.values);
            WholeRows<T> whole(inputs.key, inputs.features, all, desk.whole_keys);
            for (Index block = first; block < first + held; block++) {
                DotBlock<T>& own = block_of(crew, block);
                Place at = all;
                at.key = most(all.key, own.mask.low);
                for (Index end = least(all.key + all.keys, own.mask.high); at.key < end; at.key += at.keys) {
                    Seen seen = own.mask.next(at, end, desk.allowed);
                    if (seen == Seen::none) continue;
                    Index offset = at.key - all.key;
                    Part part{at, seen, static_cast<int>(at.row - own.mask.row), offset, {keys.data + offset * keys.row, keys.row, 1},
                              {values.data + offset * values.row, values.row, 1}, whole.data + offset * whole.row, whole.row};
                    pairs(part, own, span, sums_of(crew, span, block), desk);
                }
            }
            put(all, first == 0, desk);
        }
    }

    // Some keys against some queries of a block.
    struct Part {
        Place at;
        Seen seen;
        int skipped;   // queries of the block before these
        Index offset;  // keys of the tile before these
        Left<T> keys, values;
        const T* whole_keys;
        Index key_row;
    };

    void pairs(const Part& part, const DotBlock<T>& own, Index span, T* d_queries, const DotDesk<T>& desk) {
        const Place& at = part.at;
        const Index tile = QUERIES;
        multiply(part.keys.data, part.keys.row, Index{1}, own.queries + part.skipped, tile, desk.weights, tile, at.keys,
                 static_cast<int>(inputs.features), at.rows, false);
        multiply(part.values.data, part.values.row, Index{1}, own.upstream + part.skipped, tile, desk.gradients, tile, at.keys,
                 static_cast<int>(inputs.width), at.rows, false);
        Units<T> units(inputs, score, at.entry);
        if (units.cap > 0) keep_slopes(at, desk);
        settle_turned(inputs, units, at, part.seen, own.mask, desk.allowed, desk.weights, desk.spare);
        back_through_softmax(part, own, desk);
        bool plain = (part.seen == Seen::all && !inputs.bias.data) ||
                     (own.finite && all_finite(part.whole_keys, part.key_row, at.keys, wide));
        T *d_values = desk.d_values + part.offset * width, *d_keys = desk.d_keys + part.offset * wide;
        const T* upstream = own.whole_upstream + part.skipped * own.upstream_row;
        const T* queries = own.whole_queries + part.skipped * own.query_row;
        T* d_query = d_queries + part.skipped * wide;
        if (to.bias) add_bias_gradients(at, span, desk);
        if (units.cap > 0)
            each_vector<T>(at, [&](int i) { store(desk.gradients + i, load(desk.gradients + i) * load(desk.slopes + i)); });
        if (plain) {
            multiply(desk.weights, tile, Index{1}, upstream, own.upstream_row, d_values, width, at.keys, at.rows,
                     static_cast<int>(width), true);
            multiply(desk.gradients, tile, Index{1}, queries, own.query_row, d_keys, wide, at.keys, at.rows, static_cast<int>(wide), true);
            multiply(desk.gradients, Index{1}, tile, part.whole_keys, part.key_row, d_query, wide, at.rows, at.keys, static_cast<int>(wide),
                     true);
            return;
        }
        // Pair by pair where a number is not finite, and only what is seen: 0 * NaN is NaN.
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r++) {
                int i = c * QUERIES + r;
                if (desk.kept[i] == 0) continue;
                mix_keys<T, 1>(desk.weights + i, upstream + r * own.upstream_row, 0, width, d_values + c * width);
                mix_keys<T, 1>(desk.gradients + i, queries + r * own.query_row, 0, wide, d_keys + c * wide);
                mix_keys<T, 1>(desk.gradients + i, part.whole_keys + c * part.key_row, 0, wide, d_query + r * wide);
            }
    }

    // What the soft cap makes of a score's gradient: 1 - tanh^2.
    static void keep_slopes(const Place& at, const DotDesk<T>& desk) {
        each_vector<T>(at, [&](int i) {
            Vector<T> capped = hyperbolic_tangent<T>(load(desk.weights + i));
            store(desk.slopes + i, 1 - capped * capped);
        });
    }

    // Total scores to weights, the weights' gradients to those of total scores: weight * (gradient - delta). Pairs that are barred, by a
    // mask or by a bias, have neither, and `kept` of 0.
    void back_through_softmax(const Part& part, const DotBlock<T>& own, const DotDesk<T>& desk) const {
        constexpr T NEVER = -__builtin_inf();
        const Place& at = part.at;
        bool careful = part.seen == Seen::some || inputs.bias.data, dropping = inputs.dropout > 0;
        if (careful) each_vector<T>(at, [&](int i) { store(desk.kept + i, load(desk.weights + i) == NEVER ? Vector<T>{} : every(T(1))); });
        for (int r = 0; r < at.rows; r += WIDTH<T>) {
            Vector<T> base = load(own.bases + part.skipped + r), over = load(own.overs + part.skipped + r);
            Vector<T> delta = load(own.deltas + part.skipped + r);
            for (int c = 0; c < at.keys; c++) {
                int i = c * QUERIES + r;
                Vector<T> score = load(desk.weights + i), gradient = load(desk.gradients + i);
                Vector<T> weight = power_of_two<T>(score - base) * over;
                store(desk.weights + i, weight);
                if (dropping) continue;
                gradient = weight * (gradient - delta);
                store(desk.gradients + i, careful ? (score == NEVER ? Vector<T>{} : gradient) : gradient);
            }
        }
        if (dropping) back_through_dropout(part, own, desk);
    }

    void back_through_dropout(const Part& part, const DotBlock<T>& own, const DotDesk<T>& desk) const {
        const Place& at = part.at;
        T* keep = desk.spare;
        each_vector<T>(at, [&](int i) { store(keep + i, every(T(1))); });
        drop_turned(inputs, at, keep);
        bool careful = part.seen == Seen::some || inputs.bias.data;
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r += WIDTH<T>) {
                int i = c * QUERIES + r;
                Vector<T> weight = load(desk.weights + i), kept = load(keep + i);
                Vector<T> gradient = weight * (kept * load(desk.gradients + i) - load(own.deltas + part.skipped + r));
                store(desk.weights + i, weight * kept);
                store(desk.gradients + i, careful ? (load(desk.kept + i) == T(0) ? Vector<T>{} : gradient) : gradient);
            }
    }

    void add_bias_gradients(const Place& at, Index span, const DotDesk<T>& desk) {
        const Matrix& bias = inputs.bias;
        T heat = inputs.heat ? static_cast<T>(inputs.heat[at.entry]) : T(1);
        T* into = overlapping ? biases.data + span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.places[at.entry] + at.row * bias.row + at.key * bias.column;
        turn(desk.gradients, Index{QUERIES}, at.keys, at.rows, desk.spare, Index{KEYS});
        for (int r = 0; r < at.rows; r++)
            for (int c = 0; c < at.keys; c++) into[r * bias.row + c * bias.column] += heat * desk.spare[r * KEYS + c];
    }

    // From total scores back to products of queries and keys as they were given.
    T factor(Index entry) const { return static_cast<T>(score.scale[entry] * (inputs.heat ? inputs.heat[entry] : 1)); }

    // A tile's sums are set by the first blocks of queries, and added to by the others.
    void put(const Place& at, bool first, const DotDesk<T>& desk) const {
        T times = factor(at.entry);
        for (int c = 0; c < at.keys; c++) {
            T *d_key = result_row<T>(to.key, at.entry, at.key + c, inputs.keys, inputs.features), *own_key = desk.d_keys + c * wide;
            T *d_value = result_row<T>(to.value, at.entry, at.key + c, inputs.keys, inputs.width), *own_value = desk.d_values + c * width;
            if (first) {
                put_row(own_key, times, inputs.features, d_key), put_row(own_value, T(1), inputs.width, d_value);
                continue;
            }
            for (Index d = 0; d < inputs.features; d++) d_key[d] += own_key[d] * times;
            for (Index e = 0; e < inputs.width; e++) d_value[e] += own_value[e];
        }
    }

    void join(Index entry, int crew, Index block) {
        T* total = sums_of(crew, 0, block);
        for (Index span = 1; span < spans; span++) add(sums_of(crew, span, block), QUERIES * wide, total);
        const DotBlock<T>& own = block_of(crew, block);
        for (int r = 0; r < own.mask.rows; r++) {
            T* d_query = result_row<T>(to.query, entry, own.mask.row + r, inputs.queries, inputs.features);
            put_row(total + r * wide, factor(entry), inputs.features, d_query);
        }
    }
};

}  // namespace

template <class T>
void dot_gradients(const Inputs& inputs, const Score& score, const PassedDot& passed, const Gradients& to) {
    DotBackward<T>(inputs, score, passed, to).run();
}

template void dot_gradients<float>(const Inputs&, const Score&, const PassedDot&, const Gradients&);
template void dot_gradients<double>(const Inputs&, const Score&, const PassedDot&, const Gradients&);

}  // namespace overt::OVERT_LEVEL
