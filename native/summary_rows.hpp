// What a summary says of each query on its own, gathered while its scores pass: the sums behind log-sum-exp and entropy, and the
// largest scores.
#pragma once

#include "softmax.hpp"

namespace overt::OVERT_LEVEL {

// Tiles that are read in one go, so that a row's sums are taken over many keys at once.
constexpr int STRIPE = 8;
constexpr int TILE = ROWS * KEYS;

// One bit for each lane of a that is above that of b.
template <class T>
static inline unsigned lanes_above(Vector<T> a, Vector<T> b) {
    Whole<T> above = a > b;
    unsigned bits = 0;
    for (int i = 0; i < WIDTH<T>; i++) bits |= (above[i] & 1u) << i;
    return bits;
}
#if defined(__AVX512F__) && OVERT_BYTES == 64
template <>
inline unsigned lanes_above<float>(Vector<float> a, Vector<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
template <>
inline unsigned lanes_above<double>(Vector<double> a, Vector<double> b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
#elif defined(__AVX2__) && OVERT_BYTES == 32
template <>
inline unsigned lanes_above<float>(Vector<float> a, Vector<float> b) { return _mm256_movemask_ps((Vector<float>)(a > b)); }
template <>
inline unsigned lanes_above<double>(Vector<double> a, Vector<double> b) { return _mm256_movemask_pd((Vector<double>)(a > b)); }
#elif defined(__SSE2__) && OVERT_BYTES == 16
template <>
inline unsigned lanes_above<float>(Vector<float> a, Vector<float> b) { return _mm_movemask_ps((Vector<float>)(a > b)); }
template <>
inline unsigned lanes_above<double>(Vector<double> a, Vector<double> b) { return _mm_movemask_pd((Vector<double>)(a > b)); }
#endif

// The largest scores of a row and their keys, in the memory where they are answered: a heap with the least of them first. Of equal
// scores the one with the later key goes first, as keys come in ascending order.
template <class T>
struct Best {
    T* scores;
    std::int32_t* keys;
    Index room, held;

    // What a score must be above to be one of them.
    T bar() const { return room == 0 ? __builtin_inf() : held < room ? -__builtin_inf() : scores[0]; }

    void offer(T score, std::int32_t key) {
        if (held == room) return sink(score, key, held);
        Index child = held++;
        for (Index parent = (child - 1) / 2; child > 0 && worse(score, key, parent); child = parent, parent = (child - 1) / 2) move(parent, child);
        scores[child] = score, keys[child] = key;
    }

    // Best first; 0 and -1 where there are fewer than room.
    void sort() {
        for (Index last = held - 1; last > 0; last--) {
            T score = scores[last];
            std::int32_t key = keys[last];
            move(0, last);
            sink(score, key, last);
        }
        for (Index i = held; i < room; i++) scores[i] = 0, keys[i] = -1;
    }

   private:
    bool worse(T score, std::int32_t key, Index than) const {
        return score < scores[than] || (score == scores[than] && key > keys[than]);
    }

    void move(Index from, Index to) { scores[to] = scores[from], keys[to] = keys[from]; }

    // Puts a score in place of the first of `count`.
    void sink(T score, std::int32_t key, Index count) {
        Index hole = 0;
        for (Index child = 1; child < count; hole = child, child = 2 * hole + 1) {
            if (child + 1 < count && worse(scores[child + 1], keys[child + 1], child)) child++;
            if (worse(score, key, child)) break;
            move(child, hole);
        }
        scores[hole] = score, keys[hole] = key;
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
            if (scores[lane] > best.bar()) best.offer(scores[lane], static_cast<std::int32_t>(key + lane));
        }
    }

    // Total scores of a row in `tiles` tiles, in place, to e^(t - base); tile n begins at keys[n]. Gives the base, the row's largest so far.
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
