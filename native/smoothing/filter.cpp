// Convolution of a series with fixed weights: attention by time where points are evenly spaced.
#include "level.hpp"
#include "simd/parallel.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// ABREAST: vectors of outputs summed at once, so that sums are independent and each tap is read once for all.
constexpr int ABREAST = 8;
constexpr Index STRIDE = ABREAST * WIDTH<double>;
// SHARE: outputs that one thread processes at a time.
constexpr Index SHARE = 4096;

static void filter_vectors(const double* values, const double* taps, Index count, double* output) {
    Vector<double> sums[ABREAST] = {};
    for (Index k = 0; k < count; k++) {
        Vector<double> tap = broadcast(taps[k]);
        const double* from = values + k;
#pragma GCC unroll 8
        for (int a = 0; a < ABREAST; a++) sums[a] = multiply_add(tap, load(from + a * WIDTH<double>), sums[a]);
    }
    for (int a = 0; a < ABREAST; a++) store(output + a * WIDTH<double>, sums[a]);
}

// The outputs first <= i < stop, with the terms that exist.
static void filter_numbers(const Filter& task, Index first, Index stop) {
    for (Index i = first; i < stop; i++) {
        double sum = 0;
        Index last = min_of(task.count - 1, i + task.after);
        for (Index j = max_of<Index>(0, i - task.before); j <= last; j++)
            sum = multiply_add(task.taps[j - i + task.before], task.values[j], sum);
        task.output[i] = sum;
    }
}

void filter(const Filter& task) {
    Index taps = task.before + 1 + task.after, complete = max_of(task.before, task.count - task.after);
    // One more thread pays from 4e6 products on.
    int threads = static_cast<int>(min_of<double>(task.threads, 1 + static_cast<double>(task.count) * taps / 4e6));
    divide_items((task.count + SHARE - 1) / SHARE, threads, [&](Index share, int) {
        Index first = share * SHARE, stop = min_of(first + SHARE, task.count), i = min_of(max_of(first, task.before), stop);
        filter_numbers(task, first, i);
        for (; i + STRIDE <= min_of(stop, complete); i += STRIDE)
            filter_vectors(task.values + i - task.before, task.taps, taps, task.output + i);
        filter_numbers(task, i, stop);
    });
}

}  // namespace overt::OVERT_LEVEL
