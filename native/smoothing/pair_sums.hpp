// What points a lag apart give to each other's sums: one exponential serves both directions of a pair.
//
// Points are taken in blocks that begin at multiples of BLOCK. What a point is given comes in the order of blocks and lags, so that no
// sum depends on how the blocks are shared among threads.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

constexpr Index BLOCK = 256;
constexpr int LANES = WIDTH<double>;

#define OVERT_INLINE_MEMBER inline __attribute__((always_inline))

// exp(-rate * distance) for distances of 0 or more; never less than 2^-1000.
struct Similarity {
    Vector<double> rate, farthest;

    explicit Similarity(double given) : rate(every(given * Exponential<double>::LOG2E)), farthest(every(1000.0) / rate) {}

    OVERT_INLINE_MEMBER Vector<double> of(Vector<double> distance) const {
        Vector<double> near = smaller(distance, farthest), round = every(Exponential<double>::ROUND);
        Vector<double> shifted = round - near * rate;  // the whole part, in the low bits of the mantissa
        Vector<double> rest = (round - shifted) - near * rate;
        // Those bits, added to the exponent, multiply by the power of two; ROUND's own leave at the top.
        return (Vector<double>)((Bits<double>)small_power(rest) + ((Bits<double>)shifted << Exponential<double>::SHIFT));
    }
};

// Sums over the keys j of consecutive rows i: of the weights, times x_j - x_i, times its square; for bend and tilt see patch.cpp.
struct Sums {
    static constexpr Index COLUMNS = 5;
    // Columns begin at different places of a page of memory: a processor takes a read for one of what it just wrote there elsewhere.
    static constexpr Index PAGE = 512, APART = 104;
    static constexpr Index apart(Index rows) { return (rows + PAGE - 1) / PAGE * PAGE + APART; }
    double *total, *first, *second, *bend, *tilt;

    Sums(double* room, Index rows)
        : total(room), first(total + rows), second(first + rows), bend(second + rows), tilt(bend + rows) {}

    Sums from(Index row) const {
        Sums later = *this;
        later.total += row, later.first += row, later.second += row, later.bend += row, later.tilt += row;
        return later;
    }
};

// How many rows a thread sums at a time, and how far it goes for that: it begins a window before them, and adds to a window after.
struct Tiling {
    Index rows, tiles, reach;
    int threads;

    Tiling(Index count, Index window, int asked) {
        // Long beside the window, which is summed for nothing, and short enough for every thread to have some.
        Index share = (count + asked - 1) / asked;
        rows = (least(share, most<Index>(8 * window, 16 * BLOCK)) + BLOCK - 1) / BLOCK * BLOCK;
        tiles = (count + rows - 1) / rows;
        reach = Sums::apart(rows + 2 * (window + BLOCK));
        threads = static_cast<int>(least<Index>(asked, tiles));
    }
};

static inline void clear(double* numbers, Index count) {
    for (Index i = 0; i < count; i++) numbers[i] = 0;
}

static inline void lay_out_similarities(const double* distances, Similarity similarity, double* similar) {
    for (Index i = 0; i < BLOCK; i += LANES) store<double>(similar + i, similarity.of(load(distances + i)));
}

// Lags are taken two at a time, work(lag, whether there is lag + LANES too): what one vector of points gives at the farther lag goes
// where the next one's goes at the nearer lag, and so is kept in registers till then.
template <class Work>
static inline void each_two_lags(Index lags, Work work) {
    for (Index first = 1; first <= lags; first += 2 * LANES)
        for (Index lag = first; lag < first + LANES && lag <= lags; lag++) work(lag, lag + LANES <= lags);
}

// What pairs of points add: to the total, to the first and to the second moment of x_j - x_i.
struct Given {
    Vector<double> total, first, second;

    OVERT_INLINE_MEMBER void add_to(const Sums& sums, Index row) const {
        store<double>(sums.total + row, load(sums.total + row) + total);
        store<double>(sums.first + row, load(sums.first + row) + first);
        store<double>(sums.second + row, load(sums.second + row) + second);
    }
};

OVERT_INLINE Given given(Vector<double> weight, Vector<double> step) {
    Vector<double> moved = weight * step;
    return {weight, moved, moved * step};
}

OVERT_INLINE Given together(Given a, Given b) { return {a.total + b.total, a.first + b.first, a.second + b.second}; }
OVERT_INLINE Given back(Given a) { return {a.total, -a.first, a.second}; }

// The pairs of a block's points with those a lag later, and with those LANES further on; `similar` holds a block's similarities for
// the one, then for the other. `ahead` are what the block's points get from later ones, `behind` what all points from the block's first
// on get from earlier ones. Without BOTH only the later of two gets anything.
template <bool CHARGED, bool BOTH>
static void add_pairs(const double* values, const double* charges, Index lag, const double* similar, const Sums& ahead,
                      const Sums& behind) {
    Given kept = {};
    for (Index i = 0; i < BLOCK; i += LANES) {
        Vector<double> near = load(similar + i), far = load(similar + BLOCK + i), here = load(values + i);
        Vector<double> near_step = load(values + lag + i) - here, far_step = load(values + lag + LANES + i) - here;
        if constexpr (BOTH) {
            Vector<double> near_weight = CHARGED ? near * load(charges + lag + i) : near;
            Vector<double> far_weight = CHARGED ? far * load(charges + lag + LANES + i) : far;
            together(given(near_weight, near_step), given(far_weight, far_step)).add_to(ahead, i);
        }
        if constexpr (CHARGED) near = near * load(charges + i), far = far * load(charges + i);
        back(together(given(near, near_step), kept)).add_to(behind, lag + i);
        kept = given(far, far_step);
    }
    back(kept).add_to(behind, lag + BLOCK);
}

}  // namespace overt::OVERT_LEVEL
