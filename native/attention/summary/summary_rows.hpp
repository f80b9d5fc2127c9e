// What a summary says of each query on its own, gathered while its scores pass: the sums behind log-sum-exp and entropy, and the
// largest scores.
#pragma once

#include "attention/softmax.hpp"

namespace overt::OVERT_LEVEL {

// Tiles that are read in one go, so that a row's sums are taken over many keys at once.
constexpr int STRIPE = 8;
constexpr int TILE = ROWS * KEYS;

// The largest scores of a row in falling order, and their keys: -inf and -1 where there are fewer. Of equal scores the earlier key
// comes first, as keys come in ascending order.
template <class T>
class Best {
    using Key = typename Lanes<T>::Number;
    static constexpr int W = WIDTH<T>;
    Index room;
    T* scores;
    Key* keys;

   public:
    // One vector before the scores, whose last lane is above every score, and likewise before the keys.
    static Index memory(Index room) { return 2 * (W + padded<T>(room)); }

    void begin(Index wanted, T* memory) {
        room = wanted;
        scores = memory + W;
        keys = reinterpret_cast<Key*>(scores + padded<T>(room) + W);
        scores[-1] = __builtin_inf();
        for (Index i = 0; i < padded<T>(room); i++) scores[i] = -__builtin_inf(), keys[i] = -1;
    }

    // What a score must be above to be one of them.
    T bar() const { return scores[room - 1]; }

    // Takes its place; smaller ones move on by one.
    void insert(T score, Index key) {
        Vector<T> own = every(score), own_key = (Vector<T>)(Whole<T>{} + static_cast<Key>(key));
        T* key_bits = reinterpret_cast<T*>(keys);
        for (Index i = padded<T>(room) - W; i >= 0; i -= W) {
            Vector<T> here = load(scores + i), before = load(scores + i - 1);
            store(scores + i, own > here ? (own > before ? before : own) : here);
            store(key_bits + i, own > here ? (own > before ? load(key_bits + i - 1) : own_key) : load(key_bits + i));
            if (!(score > scores[i - 1])) return;
        }
    }

    // As weights e^(score - largest) * over.
    void write(T largest, T over, T* weights, std::int32_t* to_keys) const {
        for (Index i = 0; i < room; i++) {
            weights[i] = keys[i] < 0 ? T(0) : exponential_of(scores[i] - largest) * over;
            to_keys[i] = static_cast<std::int32_t>(keys[i]);
        }
    }
};

// A block of rows: the largest score so far, sum_j e^(t_j - largest), and sum_j e^(t_j - largest) (t_j - largest).
template <class T>
struct Rows {
    T largest[ROWS];
    double total[ROWS], slope[ROWS];
    Best<T> best[ROWS];

    void rescale(int row, T now) {
        double gap = total[row] == 0 ? 0 : static_cast<double>(largest[row]) - now, shrunk = __builtin_exp(gap);
        slope[row] = shrunk * (slope[row] + gap * total[row]);
        total[row] *= shrunk;
        largest[row] = now;
    }

    // The largest scores of a row of a tile, lane by lane; those above the bar join the best.
    Vector<T> highest(int row, const T* scores, Index key) {
        Vector<T> high = every(T(-__builtin_inf()));
        for (int c = 0; c < KEYS; c += WIDTH<T>) high = larger(load(scores + c), high);
        if (lanes_above<T>(high, every(best[row].bar())))
            for (int c = 0; c < KEYS; c += WIDTH<T>) choose(best[row], scores + c, key + c);
        return high;
    }

    static void choose(Best<T>& best, const T* scores, Index key) {
        for (unsigned above = lanes_above<T>(load(scores), every(best.bar())); above; above &= above - 1) {
            int lane = __builtin_ctz(above);
            if (scores[lane] > best.bar()) best.insert(scores[lane], key + lane);
        }
    }

    // Total scores of a row in `tiles` tiles, in place, to e^(t - base); tile n begins at keys[n]. Gives the base: the row's largest so
    // far.
    T read(int row, T* scores, int tiles, const Index* keys) {
        Vector<T> high = every(largest[row]);
        for (int tile = 0; tile < tiles; tile++) high = larger(highest(row, scores + tile * TILE, keys[tile]), high);
        if (lanes_above<T>(high, every(largest[row]))) rescale(row, overt::OVERT_LEVEL::largest<T>(high));
        T base = largest[row] == -__builtin_inf() ? T(0) : largest[row];
        Vector<T> sums{}, slopes{};
        for (int tile = 0; tile < tiles; tile++, scores += TILE)
            for (int c = 0; c < KEYS; c += WIDTH<T>) {
                Vector<T> below = load(scores + c) - base, grown = exponential<T>(below);
                store(scores + c, grown);
                sums += grown;
                slopes = fused(grown, larger(every(Exponential<T>::LOWEST), below), slopes);
            }
        total[row] += sum<T>(sums);
        slope[row] += sum<T>(slopes);
        return base;
    }
};

}  // namespace overt::OVERT_LEVEL
