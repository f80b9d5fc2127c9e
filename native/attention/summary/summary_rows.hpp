// The statistics of each query, collected tile by tile: the sums behind log-sum-exp and entropy, and the largest scores.
#pragma once

#include <utility>

#include "attention/summary/row_weights.hpp"
#include "attention/tiles/softmax.hpp"

namespace overt::OVERT_LEVEL {

// STRIPE: tiles processed together, so that a row's sums cover many keys at once.
constexpr int STRIPE = 8;
constexpr int TILE = ROWS * KEYS;

// e^x for x <= 0 by a power of two, which takes two thirds of the time.
template <class T>
OVERT_INLINE Vector<T> exponential_below(Vector<T> x) {
    return power_of_two<T>(x * T(LOG2E));
}

// The largest scores of a row in descending order, and their keys: -inf and -1 where there are fewer. Of equal scores the earlier key
// comes first, as keys come in ascending order.
template <class T>
class TopScores {
    using Key = typename Lanes<T>::Number;
    static constexpr int W = WIDTH<T>;
    Index capacity;
    T* scores;
    Key* keys;

    // The last lane of `before`, and all of `v` but its last.
    template <std::size_t... I>
    static Vector<T> moved_of(Vector<T> before, Vector<T> v, std::index_sequence<I...>) {
#if defined(__clang__)
        return __builtin_shufflevector(before, v, static_cast<int>(W - 1 + I)...);
#else
        return __builtin_shuffle(before, v, Whole<T>{static_cast<Key>(W - 1 + I)...});
#endif
    }
    static Vector<T> moved(Vector<T> before, Vector<T> v) { return moved_of(before, v, std::make_index_sequence<W>()); }

    template <int LANES, std::size_t... I>
    static Vector<T> rotated(Vector<T> v, std::index_sequence<I...>) {
#if defined(__clang__)
        return __builtin_shufflevector(v, v, static_cast<int>((LANES + I) % W)...);
#else
        return __builtin_shuffle(v, Whole<T>{static_cast<Key>((LANES + I) % W)...});
#endif
    }

    // Of more than a vector of them.
    void insert(T score, Index key) {
        Vector<T> inserted = broadcast(score), inserted_key = (Vector<T>)(Whole<T>{} + static_cast<Key>(key));
        T* key_bits = reinterpret_cast<T*>(keys);
        for (Index i = padded<T>(capacity) - W; i >= 0; i -= W) {
            Vector<T> here = load(scores + i), before = load(scores + i - 1);
            store(scores + i, inserted > here ? (inserted > before ? before : inserted) : here);
            store(key_bits + i, inserted > here ? (inserted > before ? load(key_bits + i - 1) : inserted_key) : load(key_bits + i));
            if (!(score > scores[i - 1])) return;
        }
    }

   public:
    // One vector before the scores, whose last lane is above every score, and likewise before the keys.
    static Index memory(Index capacity) { return 2 * (W + padded<T>(capacity)); }

    void begin(Index count, T* memory) {
        capacity = count;
        scores = memory + W;
        keys = reinterpret_cast<Key*>(scores + padded<T>(capacity) + W);
        scores[-1] = __builtin_inf();
        for (Index i = 0; i < padded<T>(capacity); i++) scores[i] = -__builtin_inf(), keys[i] = -1;
    }

    // The smallest of the largest scores: a score must exceed it to be inserted.
    T threshold() const { return scores[capacity - 1]; }

    // What the largest scores exceed once some more are among them, of which `high` is a vector of different ones.
    T bound_of(Vector<T> high) const {
        constexpr bool SINGLE = sizeof(T) == 4;
        constexpr T NEVER = -__builtin_inf(), EPSILON = SINGLE ? 0x1p-22 : 0x1p-51, SMALLEST = SINGLE ? 0x1p-126 : 0x1p-1022;
        if (capacity > W || __builtin_popcount(lanes_above<T>(high, broadcast(threshold()))) < capacity) return threshold();
        Whole<T> larger{};  // minus how many lanes are larger
        unrolled<W - 1>([&](auto i) OVERT_UNROLLED { larger += rotated<i + 1>(high, std::make_index_sequence<W>()) > high; });
        const T least = -horizontal_max<T>(-larger < static_cast<Key>(capacity) ? -high : broadcast(NEVER));
        return least == -NEVER ? threshold() : max_of(threshold(), least - static_cast<T>(__builtin_fabs(least)) * EPSILON - SMALLEST);
    }

    // Inserts the scores of a row of a tile that exceed a bound, and the threshold; smaller ones move by one position.
    void choose(const T* from, Index key, T bound) {
        std::uint64_t above = 0;
        for (int c = 0; c < KEYS; c += W) above |= std::uint64_t{lanes_above<T>(load(from + c), broadcast(bound))} << c;
        if (!above) return;
        if (capacity > W) {
            for (; above; above &= above - 1) {
                int lane = __builtin_ctzll(above);
                if (from[lane] > threshold()) insert(from[lane], key + lane);
            }
            return;
        }
        T* key_bits = reinterpret_cast<T*>(keys);
        Vector<T> best = load(scores), best_keys = load(key_bits);  // in registers
        const Vector<T> infinite = broadcast(T(__builtin_inf()));
        for (; above; above &= above - 1) {
            int lane = __builtin_ctzll(above);
            Vector<T> inserted = broadcast(from[lane]), before = moved(infinite, best);
            if (!(lanes_above<T>(inserted, best) >> (capacity - 1) & 1)) continue;
            Vector<T> inserted_key = (Vector<T>)(Whole<T>{} + static_cast<Key>(key + lane));
            best_keys = inserted > best ? (inserted > before ? moved(best_keys, best_keys) : inserted_key) : best_keys;
            best = inserted > best ? (inserted > before ? before : inserted) : best;
        }
        store(scores, best), store(key_bits, best_keys);
    }

    // Weights as they are, times `over`.
    void write_weights(T over, T* weights, std::int32_t* to_keys) const {
        for (Index i = 0; i < capacity; i++) {
            weights[i] = keys[i] < 0 ? T(0) : scores[i] * over;
            to_keys[i] = static_cast<std::int32_t>(keys[i]);
        }
    }

    // As weights e^(score - largest) * over.
    void write(T largest, T inverse_sum, T* weights, std::int32_t* to_keys) const {
        for (Index i = 0; i < capacity; i++) {
            weights[i] = keys[i] < 0 ? T(0) : exponential_of(scores[i] - largest) * inverse_sum;
            to_keys[i] = static_cast<std::int32_t>(keys[i]);
        }
    }
};

// A block of rows: row_max, sum_j e^(t_j - row_max), and sum_j e^(t_j - row_max) (t_j - row_max). Under other normalizers than a softmax:
// sum_j w_j, sum_j w_j log w_j, and how many weights are not 0.
template <class T>
struct RowStatistics {
    T row_max[ROWS];
    double row_sum[ROWS], slope[ROWS];
    std::int32_t support[ROWS];
    bool any_key[ROWS];
    TopScores<T> best[ROWS];

    void rescale(int row, T now) {
        double gap = row_sum[row] == 0 ? 0 : static_cast<double>(row_max[row]) - now, rescaling = __builtin_exp(gap);
        slope[row] = rescaling * (slope[row] + gap * row_sum[row]);
        row_sum[row] *= rescaling;
        row_max[row] = now;
    }

    // The largest scores of a row of some tiles, lane by lane; those above the threshold are inserted. Tile n begins at keys[n].
    Vector<T> highest(int row, const T* scores, int tiles, const Index* keys) {
        TopScores<T>& top = best[row];
        Vector<T> high = broadcast(T(-__builtin_inf()));
        for (int tile = 0; tile < tiles; tile++)
            for (int c = 0; c < KEYS; c += WIDTH<T>) high = lane_max(load(scores + tile * TILE + c), high);
        if (!lanes_above<T>(high, broadcast(top.threshold()))) return high;
        const T bound = top.bound_of(high);
        for (int tile = 0; tile < tiles; tile++) top.choose(scores + tile * TILE, keys[tile], bound);
        return high;
    }

    // Total scores of a row in `tiles` tiles to e^(t - base), in place. Returns the base: the row's maximum so far.
    T exponentiate_tiles(int row, T* scores, int tiles, const Index* keys) {
        Vector<T> high = lane_max(highest(row, scores, tiles, keys), broadcast(row_max[row]));
        if (lanes_above<T>(high, broadcast(row_max[row]))) rescale(row, horizontal_max<T>(high));
        T base = row_max[row] == -__builtin_inf() ? T(0) : row_max[row];
        Vector<T> sums{}, slopes{};
        for (int tile = 0; tile < tiles; tile++, scores += TILE)
            for (int c = 0; c < KEYS; c += WIDTH<T>) {
                Vector<T> below = load(scores + c) - base, exponentiated = exponential_below<T>(below);
                store(scores + c, exponentiated);
                sums += exponentiated;
                slopes = multiply_add(exponentiated, lane_max(broadcast(Exponential<T>::LOWEST), below), slopes);
            }
        row_sum[row] += sum<T>(sums);
        slope[row] += sum<T>(slopes);
        return base;
    }

    // Total scores of a row of a tile become weights, in place: 0 if a pair is masked. If one is negative, the sum of w log w is NaN.
    void weigh(const RowWeights<T>& weights, Index entry, Index entry_row, int row, T* scores, Index key) {
        weights.weigh(entry, entry_row, scores);
        any_key[row] |= horizontal_max<T>(highest(row, scores, 1, &key)) != -__builtin_inf();
        Vector<T> sums{}, slopes{}, counts{};
        for (int c = 0; c < KEYS; c += WIDTH<T>) {
            Vector<T> weight = load(scores + c), zeros{};
            weight = weight == T(-__builtin_inf()) ? zeros : weight;
            store(scores + c, weight);
            sums += weight, counts += weight == T(0) ? zeros : broadcast(T(1));
            Vector<T> positive = weight > T(0) ? weight : broadcast(T(1));  // of others there is no logarithm
            slopes += positive * binary_logarithm<T>(positive) * T(1 / LOG2E);
            slopes += weight < T(0) ? broadcast(T(__builtin_nan(""))) : zeros;
        }
        row_sum[row] += sum<T>(sums), slope[row] += sum<T>(slopes), support[row] += static_cast<std::int32_t>(sum<T>(counts));
    }
};

}  // namespace overt::OVERT_LEVEL
