// A fixed row of weights slid over a series: what attention by time is wherever points are evenly spaced.
#include "level.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// Vectors of outputs that are summed at once, so that each waits for no other and a tap is read once for all.
constexpr int ABREAST = 8;
constexpr Index STRIDE = ABREAST * WIDTH<double>;
// Outputs that one thread takes at a time.
constexpr Index SHARE = 4096;

static void filter_vectors(const double* values, const double* taps, Index count, double* output) {
    Vector<double> sums[ABREAST] = {};
    for (Index k = 0; k < count; k++) {
        Vector<double> tap = every(taps[k]);
        const double* from = values + k;
#pragma GCC unroll 8
        for (int a = 0; a < ABREAST; a++) sums[a] = fused(tap, load(from + a * WIDTH<double>), sums[a]);
    }
    for (int a = 0; a < ABREAST; a++) store(output + a * WIDTH<double>, sums[a]);
}

// The outputs first <= i < stop with whatever terms they have.
static void filter_numbers(const Filter& task, Index first, Index stop) {
    for (Index i = first; i < stop; i++) {
        double sum = 0;
        Index last = least(task.count - 1, i + task.after);
        for (Index j = most<Index>(0, i - task.before); j <= last; j++) sum = fused(task.taps[j - i + task.before], task.values[j], sum);
        task.output[i] = sum;
    }
}

void filter(const Filter& task) {
    Index taps = task.before + 1 + task.after, complete = most(task.before, task.count - task.after);
    // Fewer products are not worth another thread's start.
    int threads = static_cast<int>(least<double>(task.threads, 1 + static_cast<double>(task.count) * taps / 4e6));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (Index first = 0; first < task.count; first += SHARE) {
        Index stop = least(first + SHARE, task.count), i = least(most(first, task.before), stop);
        filter_numbers(task, first, i);
        for (; i + STRIDE <= least(stop, complete); i += STRIDE)
            filter_vectors(task.values + i - task.before, task.taps, taps, task.output + i);
        filter_numbers(task, i, stop);
    }
}

}  // namespace overt::OVERT_LEVEL
