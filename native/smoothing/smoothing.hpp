// The interface of the kernels for smoothing series: plain pointers to contiguous float64 arrays that the caller owns.
#pragma once

#include "kernels.hpp"

namespace overt {

// output_i = sum_k taps_k * values_(i - before + k); beyond its ends the series is zero.
struct Filter {
    const double* values;
    Index count;
    const double* taps;
    Index before, after;  // the reach of the taps: there are before + 1 + after
    double* output;
    int threads;
};

// Attention whose scores compare patches, see overt/smoothing/heads/patches.py: w_j exp(-rate sum_m g_m (x_(i+m) - x_(j+m))^2) over the
// keys j with |i - j| <= window. Results are (bandwidths, count); a row's values are NaN where its weights underflow.
struct Patch {
    const double* padded;       // count + 2 half values: x_(-half) first
    const double* key_weights;  // w_j, 0 or more; nullptr: all 1
    Index count, half;
    const double* profile;  // g, 2 half + 1
    const double* rates;
    Index bandwidths;
    Index window;
    bool past;  // only keys j <= i
    double* values;
    double* slopes;
    double* self_weights;
    int threads;
};

// output_i = sum_j f(j - i) values_j for smooth f. The series is cut into stretches of `size` points, a multiple of 8. A stretch that
// lies `away` stretches later counts by its sums against polynomials, or, where f is cut off within it, point by point.
struct Slide {
    const double* values;
    Index count;
    Index size;
    int terms;               // polynomials, a multiple of 8
    const double* table;     // (size, terms): each polynomial at each point of a stretch
    const double* reading;   // (terms, size): the same, transposed
    Index first, whole;      // first <= away < first + whole by their sums
    const double* matrices;  // (whole, terms, terms), from the sums of one to the polynomials of the other
    const Index* cut;        // the stretches away that count point by point
    int cuts;
    const double* corners;  // (cuts, size, size): from each point of one to each of the other
    double* output;
    int threads;
};

// The same for some rows, directly by the definition, with any weights and at the ends; results are (bandwidths, count).
struct PatchRows {
    Patch patch;
    const Index* source;  // which point each of the padded ones is
    const Index* rows;
    Index count;
};

// Keys with time and value: w_j exp(-rate_time (t_i - t_j)^2 - rate_value (x_i - x_j)^2), in ascending order of time.
struct WeightedPoints {
    const double* times;
    const double* values;
    const double* weights;  // above 0, the largest 1; nullptr: all 1
    Index count;
    double rate_time, rate_value;
};

// For each row: the output, a point's weight on itself, and the variance of the values under the weights.
struct PairResults {
    double* values;
    double* self_weights;
    double* variance;
};

// The points attend to each other, within `reach` in time on both sides.
struct Bilateral {
    WeightedPoints points;
    double reach;
    PairResults results;
    int threads;
};

// Other points attend to them: row i to the keys start_i <= j < stop_i. self_index_i is its own index among the keys, or -1.
struct BilateralRows {
    WeightedPoints keys;
    const double* times;
    const double* values;
    const Index* start;
    const Index* stop;
    const Index* self_index;
    Index count;
    PairResults results;
    int threads;
};

// Boxes of time that hold all keys, see local/boxes.hpp. Matrices map the sums of a box of keys to polynomials in a box of targets:
// (2 reach + 1, 24, powers, 24), the first for keys `reach` boxes earlier.
struct Boxes {
    Index count = 0;               // 0: no boxes, all sums are taken key by key
    double origin = 0, width = 0;  // short mantissas, so that all edges are exact
    Index reach = 0, squares_reach = 0;
    const double* matrices = nullptr;
    const double* squares = nullptr;  // for squared weights
    const double* largest = nullptr;  // (2 reach + 1): the largest weight from one of the boxes to the other
};

enum class Side : int { both, past, future };

// Local polynomial regression of degree 0 to 2: weights w_j exp(-(t_j - t_i)^2 rate^2 / 2) over the keys within `window` on a side.
struct Local {
    const double* times;  // ascending
    const double* values;
    const double* weights;  // nullptr: all 1
    Index count;
    const double* targets;  // ascending
    Index rows;
    double rate;
    double reach;   // distance at which a weight is negligible next to that of a key at the target
    double window;
    Side side;
    int degree;
    bool raw;    // only the sums of weights, by the power of u
    Boxes boxes;
    // (3, rows): value, coefficient of the target's own key, squares; NaN where no key is in reach. Raw: (2 degree + 1, rows)
    double* results;
    int threads;
};

// Attention whose scores compare a guide, see overt/smoothing/heads/guided.py: w_j exp(-rate_time (t_i - t_j)^2 - rate (g_i - g_j)^2) over
// the keys within `reach` in time. Results are (bandwidths, count); a row's outputs are NaN where its weights underflow.
struct Guided {
    const double* times;  // ascending
    const double* guide;
    const double* values;
    const double* weights;  // 0 or more, the largest 1; nullptr: all 1
    Index count;
    double rate_time, reach;
    const double* table;  // if times are 0, 1, 2, ...: the factor of time at lags 0 to `lags`
    Index lags;           // 0: no table
    const double* rates;
    const Index* squarings;  // how often the previous bandwidth's exponentials are squared to give this one's; 0: recomputed
    Index bandwidths;
    Side side;
    double* outputs;
    double* self_weights;
    double* covariance;
    int threads;
};

// The outputs of heads, each (heads, count): y_i, its derivative by x_i, and its variance, or nullptr if not needed.
struct Bank {
    const double* values;
    const double* slopes;
    const double* variances;
    Index heads, count;
};

// Stein's estimates of the heads' squared errors, summed over blocks of `step` points.
struct Risks {
    Bank bank;
    const double* observed;
    const double* sharpness;  // 1 / noise; 0 where a value is missing
    double premium;
    Index step;
    bool running;  // whether sums run up to each point of a block, (heads, count)
    double* sums;  // (heads, blocks)
    int threads;
};

// The weight of each head in the middle of each block of `step` points, with linear interpolation between.
struct Shares {
    const double* weights;    // (heads, blocks)
    const double* stiffness;  // (blocks,)
    Index blocks, step;
};

// Weights by the risk up to each point: softmax of -(before + within) coldness, over the heads.
struct PastShares {
    const double* before;    // (heads, blocks): of the blocks before each
    const double* within;    // (heads, count): of a point's own block
    const double* coldness;  // (count,)
    Index blocks, step;
};

// Mixtures of heads, one for each of several shares: the same columns as a bank's, (mixtures, points).
struct Mixtures {
    double* values;
    double* slopes;
    double* variances;
    int count;
};

struct Blend {
    Bank bank;
    const double* sharpness;
    const Shares* around;
    const PastShares* past;  // nullptr: around
    Mixtures mixtures;
    int threads;
};

// The empirical Wiener filter in the cosines of windows, see overt/smoothing/selection/bank/wiener.py.
struct Wiener {
    const double* values;
    const double* squares;  // the variance of each value's noise
    const double* pilot;
    Index count;
    bool alike;  // whether all squares are equal
    Index length;         // 16, 32, ... 1024, at most count
    const Index* starts;  // ascending; each point is in a window
    Index windows;
    const double* taper;           // (length,)
    const double* spectrum;        // (length - 1,): the noise's variance in each cosine except the constant one
    const double* mean_leverages;  // (length,): the leverages of the window's mean
    const double* factors;         // (length - 1,): the factors of the transforms
    double* values_to;
    double* leverages_to;
    int threads;
};

// The mean over all ways to divide a series into segments, see overt/smoothing/selection/bank/segments.py.
struct Segments {
    const double* times;    // ascending
    const double* values;
    const double* weights;  // 1/variance of each value's noise, 0 where it is missing
    Index count;
    double change, prior, center;
    double* values_to;
    double* variances_to;
    int threads;
    Index row;       // the point whose weights are added to row_to, -1 for values and variances
    double* row_to;  // (count,), zeros before
};

// The kernels of one SIMD level.
struct Smoothing {
    void (*filter)(const Filter&);
    void (*slide)(const Slide&);
    void (*local)(const Local&);
    void (*patch)(const Patch&);
    void (*patch_rows)(const PatchRows&);
    void (*bilateral)(const Bilateral&);
    void (*bilateral_rows)(const BilateralRows&);
    void (*guided)(const Guided&);
    void (*risks)(const Risks&);
    void (*blend)(const Blend&);
    void (*wiener)(const Wiener&);
    void (*segments)(const Segments&);
};

}  // namespace overt
