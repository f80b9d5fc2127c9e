// Additive attention, backward: a tile's weights are computed again from the scores and the row's log-sum-exp, so that nothing of
// size Q x K is kept. Keys are shared out among threads; each adds to sums of its own for the queries, which are joined in order.
#include "attention/gradients/gradient_workspace.hpp"
#include "attention/scores/relu_gradients.hpp"
#include "attention/scores/tanh_gradients.hpp"
#include "attention/threads.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

template <class T, class Slopes>
class Backward {
    const Inputs& inputs;
    const Score& score;
    const Passed* passed;    // of attention; nullptr where the scores' own gradients are given
    const T* given;          // (batch, Q, K)
    const Gradients& to;
    bool overlapping;        // whether several keys share a number of the bias
    Team team;
    int tile_keys;
    Index wide, width, tiles, spans, chunk, query_room, key_room, desk_room, crew_room, slopes_room;
    Scratch<T> desks, crews, memory, biases;
    Scratch<double> sums;    // a span's: of the terms, feature by feature, and of the gradients

   public:
    Backward(const Inputs& inputs, const Score& score, const Passed* passed, const T* given, const Gradients& to)
        : inputs(inputs), score(score), passed(passed), given(given), to(to),
          overlapping(to.bias && (inputs.bias.column == 0 || inputs.bias.row == -inputs.bias.column)), team(inputs, to.bias),
          tile_keys(keys_of_tile<T>(inputs)), wide(padded<T>(inputs.features)), width(padded<T>(inputs.width)),
          tiles(count(inputs.keys, tile_keys)),
          spans(most<Index>(1, least<Index>(team.size, tiles))), chunk(least(inputs.queries, CHUNK)),
          query_room(Slopes(inputs, score, nullptr).query_room()), key_room(Slopes(inputs, score, nullptr).key_room()),
          desk_room(Desk<T>::room(key_room, wide, width)), crew_room(chunk * (query_room + width + spans * wide + 2)),
          slopes_room(Slopes::room(inputs)), desks(team.threads * desk_room), crews(team.crews * crew_room),
          memory(team.crews * slopes_room), biases(overlapping ? spans * to.bias_size : 0), sums(team.crews * spans * (wide + 1)) {}

    void run() {
        if (overlapping) clear(biases.data, spans * to.bias_size);
        team.each_entry([this](Index entry, int crew) { one(entry, crew); });
        for (Index span = 0; overlapping && span < spans; span++)
            add(biases.data + span * to.bias_size, to.bias_size, static_cast<T*>(to.bias));
    }

   private:
    void one(Index entry, int crew) {
        Slopes slopes(inputs, score, memory.data + crew * slopes_room);
        slopes.begin(entry);
        double* own = sums.data + crew * spans * (wide + 1);
        for (Index i = 0; i < spans * (wide + 1); i++) own[i] = 0;
        T* shared = crews.data + crew * crew_room;
        Chunk<T> now{0, 0, shared, shared + chunk * query_room, shared + chunk * (query_room + width), nullptr, nullptr};
        now.bases = now.d_queries + spans * chunk * wide, now.overs = now.bases + chunk;
        do {
            now.rows = least(chunk, inputs.queries - now.first);
            auto desk_of = [&](int member) { return Desk<T>(desks.data + (crew * team.size + member) * desk_room, key_room, wide, width); };
            team.each(count(now.rows, ROWS), [&](Index block, int member) {
                prepare(slopes, entry, now, block);
                if (passed && any_large(entry, now, block)) sum_anew(slopes, entry, now, block, desk_of(member));
            });
            team.each(spans, [&](Index span, int member) {
                against_keys(slopes, entry, now, span, desk_of(member), own + span * (wide + 1));
            });
            team.each(count(now.rows, ROWS), [&](Index block, int) { join(slopes, entry, now, block); });
            now.first += chunk;
        } while (now.first < inputs.queries);
        for (Index d = 0; d < inputs.features; d++) {
            double terms = 0, gradients = 0;
            for (Index span = 0; span < spans; span++) terms += own[span * (wide + 1) + d], gradients += own[span * (wide + 1) + wide];
            result_row<T>(to.weight, entry, 0, 1, inputs.features)[d] = static_cast<T>(slopes.weight_gradient(gradients, terms));
        }
    }

    // Packs a block of queries and finds delta_i = sum_e output_ie upstream_ie.
    void prepare(const Slopes& slopes, Index entry, const Chunk<T>& now, Index block) const {
        for (Index r = block * ROWS; r < least(now.rows, (block + 1) * ROWS); r++) {
            slopes.pack_query(now.first + r, now.queries + r * query_room);
            if (!passed) continue;
            Index row = entry * inputs.queries + now.first + r;
            const T *up = static_cast<const T*>(passed->upstream) + row * inputs.width,
                    *out = static_cast<const T*>(passed->output) + row * inputs.width;
            T delta = 0, *padded_up = now.upstream + r * width;
            for (Index e = 0; e < width; e++) padded_up[e] = e < inputs.width ? up[e] : T(0);
            for (Index e = 0; e < inputs.width; e++) delta += up[e] * out[e];
            static_cast<T*>(to.delta)[row] = delta;
            now.bases[r] = static_cast<const T*>(passed->lse)[row], now.overs[r] = 1;
        }
    }

    static bool large(T lse) { return (lse > LARGE<T> || lse < -LARGE<T>) && lse - lse == 0; }
    bool any_large(Index entry, const Chunk<T>& now, Index block) const {
        const T* lse = static_cast<const T*>(passed->lse) + entry * inputs.queries + now.first;
        for (Index r = block * ROWS; r < least(now.rows, (block + 1) * ROWS); r++)
            if (large(lse[r])) return true;
        return false;
    }

    // Rows whose log-sum-exp is large: its two parts and delta, from the very numbers that the weights' gradients are made of.
    void sum_anew(const Slopes& slopes, Index entry, const Chunk<T>& now, Index block, const Desk<T>& desk) const {
        const Index first = block * ROWS;
        Place at{entry, now.first + first, 0, static_cast<int>(least<Index>(ROWS, now.rows - first)), 0};
        Anew<T> rows[ROWS];
        for (int r = 0; r < at.rows; r++) {
            rows[r].wanted = large(now.bases[first + r]);
            if (inputs.sink) rows[r].join(static_cast<T>(inputs.sink[entry]), T(0));
        }
        for (Index tile = 0; tile < tiles; tile++) {
            at.key = tile * tile_keys, at.keys = size_of(tile, tile_keys, inputs.keys);
            Seen seen = seen_at(inputs, at, desk.allowed);
            if (seen == Seen::none) continue;
            lay_out(slopes, at, desk);
            weigh_up(at, now.upstream + first * width, desk);
            each_hand(at, seen, desk, [&](auto size, int r, const int* which) {
                constexpr int N = decltype(size)::COUNT;
                if (!rows[r].wanted) return;
                Totals<N> scores = totals<N>(slopes, at, r, which, now.queries + (first + r) * query_room, desk);
                for (int n = 0; n < N; n++) rows[r].join(scores.of[n], desk.keep[r * KEYS + which[n]] * desk.scores[r * KEYS + which[n]]);
            });
        }
        for (int r = 0; r < at.rows; r++) {
            if (!rows[r].wanted) continue;
            now.bases[first + r] = rows[r].base, now.overs[first + r] = 1 / rows[r].total;
            static_cast<T*>(to.delta)[entry * inputs.queries + at.row + r] = rows[r].delta / rows[r].total;
        }
    }

    // A chunk of rows against every `spans`-th tile of keys.
    void against_keys(const Slopes& slopes, Index entry, const Chunk<T>& now, Index span, Desk<T> desk, double* own) {
        T* d_queries = now.d_queries + span * chunk * wide;
        clear(d_queries, now.rows * wide);
        for (Index tile = span; tile < tiles; tile += spans) {
            Place at{entry, 0, tile * tile_keys, 0, size_of(tile, tile_keys, inputs.keys)};
            if (keys_in_place()) desk.d_keys = result_row<T>(to.key, entry, at.key, inputs.keys, wide);
            if (values_in_place()) desk.d_values = result_row<T>(to.value, entry, at.key, inputs.keys, width);
            bool packed = false;
            for (Index first = 0; first < now.rows; first += ROWS) {
                at.row = now.first + first, at.rows = static_cast<int>(least<Index>(ROWS, now.rows - first));
                Seen seen = seen_at(inputs, at, desk.allowed);
                if (seen == Seen::none) continue;
                if (!packed) lay_out(slopes, at, desk);
                packed = true;
                weigh_up(at, now.upstream + first * width, desk);
                clear(desk.d_weights, wide);
                own[wide] += block(slopes, at, seen, now, first, d_queries + first * wide, span, desk);
                for (Index d = 0; d < wide; d++) own[d] += desk.d_weights[d];
                if (passed) add_values(at, now.upstream + first * width, desk);
            }
            put(slopes, at, now.first == 0, packed, desk);
        }
    }

    // A tile's keys packed, its values turned so that their features are rows, its sums empty.
    void lay_out(const Slopes& slopes, const Place& at, const Desk<T>& desk) const {
        slopes.pack_keys(at.key, at.keys, desk.keys);
        if (passed && !few()) {
            T* spare = desk.d_values;
            for (int c = 0; c < KEYS; c++) {
                const T* value = c < at.keys ? row_of(inputs.value, at.entry, at.key + c, inputs.width, spare) : nullptr;
                for (Index e = 0; e < inputs.width; e++) desk.values[e * KEYS + c] = value ? value[e] : T(0);
            }
        }
        clear(desk.d_keys, at.keys * wide);
        clear(desk.d_values, at.keys * width);
    }

    // So few rows that turning the values would take longer than their products.
    bool few() const { return inputs.queries <= ROWS; }

    // With one block of rows, a tile's sums can stand where its gradients go, if their columns are whole vectors.
    bool keys_in_place() const { return few() && wide == inputs.features; }
    bool values_in_place() const { return passed && few() && width == inputs.width; }

    // The gradients of a tile's weights, upstream_i . value_j, in place of scores; its biases, and what dropout keeps.
    void weigh_up(const Place& at, const T* upstream, const Desk<T>& desk) const {
        if (passed && few())
            dots(upstream, width, Values<T>(inputs, at, desk.values), at.rows, at.keys, desk.scores);
        else if (passed)
            multiply(upstream, width, Index{1}, desk.values, Index{KEYS}, desk.scores, Index{KEYS}, at.rows, static_cast<int>(inputs.width),
                     at.keys, false);
        clear(desk.weights, at.rows * KEYS);
        clear(desk.biases, at.rows * KEYS);
        if (inputs.bias.data) add_bias(inputs.bias, at, desk.biases);
        for (int i = 0; i < at.rows * KEYS; i++) desk.keep[i] = 1;
        for (int r = 0; r < at.rows && inputs.dropout > 0; r++) drop(inputs, at.entry, at.row + r, at.key, at.keys, desk.keep + r * KEYS);
    }

    // A block of rows against a tile.
    T block(const Slopes& slopes, const Place& at, Seen seen, const Chunk<T>& now, Index first, T* d_queries, Index span,
            const Desk<T>& desk) {
        T total = 0;
        each_hand(at, seen, desk, [&](auto size, int r, const int* which) {
            total += hand<decltype(size)::COUNT>(slopes, at, r, which, now, first + r, d_queries + r * wide, span, desk);
        });
        return total;
    }

    template <int N>
    struct Size {
        static constexpr int COUNT = N;
    };

    // work(size, row, which): a hand of keys at a time for all rows, so that these and their sums stay in the nearest cache.
    template <class Work>
    void each_hand(const Place& at, Seen seen, const Desk<T>& desk, Work work) const {
        int size = wide * static_cast<Index>(sizeof(T)) <= 1024 ? HAND : wide * static_cast<Index>(sizeof(T)) <= 2048 ? HAND / 2 : HAND / 4;
        for (int c = 0; c < at.keys; c += size)
            for (int r = 0; r < at.rows; r++) {
                int which[HAND], held = choose(at, r, seen, c, least(size, at.keys - c), which, desk);
                if (held == HAND)
                    work(Size<HAND>(), r, which);
                else if (held == HAND / 2)
                    work(Size<HAND / 2>(), r, which);
                else if (held == HAND / 4)
                    work(Size<HAND / 4>(), r, which);
                else
                    for (int h = 0; h < held; h++) work(Size<1>(), r, which + h);
            }
    }

    // The keys of a hand that a row may attend to: no other is touched.
    int choose(const Place& at, int r, Seen seen, int first, int count, int* which, const Desk<T>& desk) const {
        Index row = at.entry * inputs.queries + at.row + r;
        if (passed && static_cast<const T*>(passed->lse)[row] == -__builtin_inf()) return 0;
        int held = 0;
        if (seen == Seen::all && !given && !inputs.bias.data)
            for (; held < count; held++) which[held] = first + held;
        for (int c = first + held; c < first + count; c++) {
            which[held] = c;
            bool barred = seen == Seen::some && !desk.allowed[r * KEYS + c];
            held += !barred && (given ? given[row * inputs.keys + at.key + c] != 0 : desk.biases[r * KEYS + c] != -__builtin_inf());
        }
        return held;
    }

    template <int N>
    struct Totals {
        T of[N + WIDTH<T>] = {};
    };

    // One row and N keys: their terms, kept, and their total scores, or plain scores where their gradients are given.
    template <int N>
    inline Totals<N> totals(const Slopes& slopes, const Place& at, int r, const int* which, const T* query, const Desk<T>& desk) const {
        constexpr int HALF = N > 4 ? N / 2 : N;
        Totals<N> found;
        for (int n = 0; n < N; n += HALF) slopes.template terms<HALF>(query, desk.keys, which + n, desk.kept + n * wide, found.of + n);
        if (given) return found;
        T heat = inputs.heat ? static_cast<T>(inputs.heat[at.entry]) : T(1);
        // The 0 keeps a compiler from joining this product with what is taken off later: a total score is one number everywhere.
        for (int n = 0; n < N; n++) found.of[n] = fused(heat, found.of[n] + desk.biases[r * KEYS + which[n]], T(0));
        return found;
    }

    // What the gradients of N scores make of query, keys and weight.
    template <int N>
    T hand(const Slopes& slopes, const Place& at, int r, const int* which, const Chunk<T>& now, Index own, T* d_query, Index span,
           const Desk<T>& desk) {
        Totals<N> scores = totals<N>(slopes, at, r, which, now.queries + own * query_room, desk);
        Index row = at.entry * inputs.queries + at.row + r;
        T gradients[N], total = 0;
        if (given)
            for (int n = 0; n < N; n++) gradients[n] = given[row * inputs.keys + at.key + which[n]];
        else
            backwards<N>(at, r, which, now.bases[own], now.overs[own], scores.of, gradients, desk);
        slopes.template slopes<N>(gradients, which, desk.kept, d_query, desk.d_keys, desk.d_weights);
        for (int n = 0; n < N; n++) total += gradients[n];
        if (to.bias) add_bias_gradients(at, r, which, N, gradients, span);
        return total;
    }

    // Back through the softmax: dscore = heat * weight * (dweight - delta).
    template <int N>
    void backwards(const Place& at, int r, const int* which, T base, T over, T* scores, T* gradients, const Desk<T>& desk) const {
        T heat = inputs.heat ? static_cast<T>(inputs.heat[at.entry]) : T(1);
        T delta = static_cast<const T*>(to.delta)[at.entry * inputs.queries + at.row + r];
        for (int n = 0; n < N; n++) scores[n] -= base;
        for (int n = 0; n < N; n += WIDTH<T>) store(scores + n, exponential<T>(load(scores + n)) * over);
        for (int n = 0; n < N; n++) {
            int at_tile = r * KEYS + which[n];
            gradients[n] = heat * scores[n] * (desk.keep[at_tile] * desk.scores[at_tile] - delta);
            desk.weights[at_tile] = desk.keep[at_tile] * scores[n];
        }
    }

    void add_bias_gradients(const Place& at, int r, const int* which, int count, const T* gradients, Index span) {
        const Matrix& bias = inputs.bias;
        T* into = overlapping ? biases.data + span * to.bias_size : static_cast<T*>(to.bias);
        into += bias.places[at.entry] + (at.row + r) * bias.row + at.key * bias.column;
        for (int n = 0; n < count; n++) into[which[n] * bias.column] += gradients[n];
    }

    // d_values += weights^T upstream; pair by pair where a row's upstream is not finite, since 0 * NaN is NaN.
    void add_values(const Place& at, const T* upstream, const Desk<T>& desk) const {
        if (all_finite(upstream, width, at.rows, width)) {
            multiply(desk.weights, Index{1}, Index{KEYS}, upstream, width, desk.d_values, width, at.keys, at.rows, static_cast<int>(width),
                     true);
            return;
        }
        for (int r = 0; r < at.rows; r++)
            for (int c = 0; c < at.keys; c++) {
                T weight = desk.weights[r * KEYS + c];
                for (Index e = 0; weight != 0 && e < width; e++) desk.d_values[c * width + e] += weight * upstream[r * width + e];
            }
    }

    // Adds a tile's sums to the gradients of its keys and values; the first chunk sets them.
    void put(const Slopes& slopes, const Place& at, bool first, bool packed, const Desk<T>& desk) const {
        if (!packed && !first) return;
        if (!packed) {
            clear(result_row<T>(to.key, at.entry, at.key, inputs.keys, inputs.features), at.keys * inputs.features);
            if (passed) clear(result_row<T>(to.value, at.entry, at.key, inputs.keys, inputs.width), at.keys * inputs.width);
            return;
        }
        for (int c = 0; c < at.keys; c++) {
            T* d_key = result_row<T>(to.key, at.entry, at.key + c, inputs.keys, inputs.features);
            slopes.input_gradients(desk.d_keys + c * wide, !first, d_key);
            if (!passed || values_in_place()) continue;
            T* d_value = result_row<T>(to.value, at.entry, at.key + c, inputs.keys, inputs.width);
            if (first) clear(d_value, inputs.width);
            add(desk.d_values + c * width, inputs.width, d_value);
        }
    }

    void join(const Slopes& slopes, Index entry, const Chunk<T>& now, Index block) const {
        for (Index r = block * ROWS; r < least(now.rows, (block + 1) * ROWS); r++) {
            T* d_query = result_row<T>(to.query, entry, now.first + r, inputs.queries, inputs.features);
            T* total = now.d_queries + r * wide;
            for (Index span = 1; span < spans; span++)
                add(now.d_queries + (span * chunk + r) * wide, wide, total);
            slopes.input_gradients(total, false, d_query);
        }
    }
};

template <class T>
void gradients_of(const Inputs& inputs, const Score& score, const Passed* passed, const void* given, const Gradients& to) {
    const T* scores = static_cast<const T*>(given);
    if (score.activation <= Activation::sigmoid)
        Backward<T, SmoothSlopes<T>>(inputs, score, passed, scores, to).run();
    else
        Backward<T, RectifiedSlopes<T>>(inputs, score, passed, scores, to).run();
}

}  // namespace

template <class T>
void additive_gradients(const Inputs& inputs, const Score& score, const Passed& passed, const Gradients& to) {
    gradients_of<T>(inputs, score, &passed, nullptr, to);
}

template <class T>
void additive_scores_gradients(const Inputs& inputs, const Score& score, const void* upstream, const Gradients& to) {
    gradients_of<T>(inputs, score, nullptr, upstream, to);
}

template void additive_gradients<float>(const Inputs&, const Score&, const Passed&, const Gradients&);
template void additive_gradients<double>(const Inputs&, const Score&, const Passed&, const Gradients&);
template void additive_scores_gradients<float>(const Inputs&, const Score&, const void*, const Gradients&);
template void additive_scores_gradients<double>(const Inputs&, const Score&, const void*, const Gradients&);

}  // namespace overt::OVERT_LEVEL
