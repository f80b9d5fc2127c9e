// Sums over pairs of points that are one lag apart: one exponential serves both directions of a pair.
//
// Points are taken in blocks that begin at multiples of BLOCK. The terms of a point are added in the order of blocks and lags, so that no
// sum depends on the distribution of blocks among threads.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

constexpr Index BLOCK = 256;
constexpr int LANES = WIDTH<double>;


// exp(-rate * distance) for distances of 0 or more; at least 2^-1000.
struct Similarity {
    Vector<double> rate, farthest;

    explicit Similarity(double factor) : rate(broadcast(factor * Exponential<double>::LOG2E)), farthest(broadcast(1000.0) / rate) {}

    OVERT_INLINE_MEMBER Vector<double> of(Vector<double> distance) const {
        Vector<double> near = lane_min(distance, farthest), round = broadcast(Exponential<double>::ROUND);
        Vector<double> shifted = round - near * rate;  // the integer part, in the low bits of the mantissa
        Vector<double> rest = (round - shifted) - near * rate;
        // These bits, added to the exponent, multiply by the power of two. The bits of ROUND itself are shifted out.
        return (Vector<double>)((Bits<double>)small_power(rest) + ((Bits<double>)shifted << Exponential<double>::SHIFT));
    }
};

// Sums over the keys j of consecutive rows i: of the weights, times x_j - x_i, times its square; for bend and tilt see patch.cpp.
struct Sums {
    static constexpr Index COLUMNS = 5;
    // Columns begin at different offsets of a memory page: otherwise the processor mistakes a read for one of a recent write (4K aliasing).
    static constexpr Index PAGE = 512, APART = 104;
    static constexpr Index apart(Index rows) { return (rows + PAGE - 1) / PAGE * PAGE + APART; }
    double *total, *first, *second, *bend, *tilt;

    Sums(double* memory, Index rows)
        : total(memory), first(total + rows), second(first + rows), bend(second + rows), tilt(bend + rows) {}

    Sums from(Index row) const {
        Sums later = *this;
        later.total += row, later.first += row, later.second += row, later.bend += row, later.tilt += row;
        return later;
    }
};

// The rows that a thread sums at a time, and its extent: from a window before them to a window after them.
struct Tiling {
    Index rows, tiles, reach;
    int threads;

    Tiling(Index count, Index window, int max_threads) {
        // Long compared with the window, whose sums are computed twice, and short enough to give every thread work.
        Index share = (count + max_threads - 1) / max_threads;
        rows = (min_of(share, max_of<Index>(8 * window, 16 * BLOCK)) + BLOCK - 1) / BLOCK * BLOCK;
        tiles = (count + rows - 1) / rows;
        reach = Sums::apart(rows + 2 * (window + BLOCK));
        threads = static_cast<int>(min_of<Index>(max_threads, tiles));
    }
};

static inline void clear(double* numbers, Index count) {
    for (Index i = 0; i < count; i++) numbers[i] = 0;
}

static inline void compute_similarities(const double* distances, Similarity similarity, double* similar) {
    for (Index i = 0; i < BLOCK; i += LANES) store<double>(similar + i, similarity.of(load(distances + i)));
}

// Lags are taken two at a time, work(lag, whether there is lag + LANES too). The terms of one vector of points at the farther lag have the
// same target as those of the next vector at the nearer lag, and stay in registers until then.
template <class Work>
static inline void each_two_lags(Index lags, Work work) {
    for (Index first = 1; first <= lags; first += 2 * LANES)
        for (Index lag = first; lag < first + LANES && lag <= lags; lag++) work(lag, lag + LANES <= lags);
}

// The terms of pairs of points: of the total, of the first and of the second moment of x_j - x_i.
struct Moments {
    Vector<double> total, first, second;

    OVERT_INLINE_MEMBER void add_to(const Sums& sums, Index row) const {
        store<double>(sums.total + row, load(sums.total + row) + total);
        store<double>(sums.first + row, load(sums.first + row) + first);
        store<double>(sums.second + row, load(sums.second + row) + second);
    }
};

OVERT_INLINE Moments moments_of(Vector<double> weight, Vector<double> step) {
    Vector<double> moved = weight * step;
    return {weight, moved, moved * step};
}

OVERT_INLINE Moments sum_of(Moments a, Moments b) { return {a.total + b.total, a.first + b.first, a.second + b.second}; }
OVERT_INLINE Moments reversed(Moments a) { return {a.total, -a.first, a.second}; }

// The pairs of a block's points with those a lag later, and with those LANES further on. `similar` holds a block's similarities for the
// one, then for the other. `ahead` are the sums of the block's points over later ones, `behind` those of all points from the block's first
// on over earlier ones. Without BOTH only the later point of a pair is updated.
template <bool WEIGHTED, bool BOTH>
static void add_pairs(const double* values, const double* key_weights, Index lag, const double* similar, const Sums& ahead,
                      const Sums& behind) {
    Moments carried = {};
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> near = load(similar + i), far = load(similar + BLOCK + i), here = load(values + i);
        Vector<double> near_step = load(values + lag + i) - here, far_step = load(values + lag + LANES + i) - here;
        if constexpr (BOTH) {
            Vector<double> near_weight = WEIGHTED ? near * load(key_weights + lag + i) : near;
            Vector<double> far_weight = WEIGHTED ? far * load(key_weights + lag + LANES + i) : far;
            sum_of(moments_of(near_weight, near_step), moments_of(far_weight, far_step)).add_to(ahead, i);
        }
        if constexpr (WEIGHTED) near = near * load(key_weights + i), far = far * load(key_weights + i);
        reversed(sum_of(moments_of(near, near_step), carried)).add_to(behind, lag + i);
        carried = moments_of(far, far_step);
    }
    reversed(carried).add_to(behind, lag + BLOCK);
}

}  // namespace overt::OVERT_LEVEL
