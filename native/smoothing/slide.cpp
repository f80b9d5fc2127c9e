// Convolution of evenly spaced values with smooth weights, by the sums of stretches: overt/smoothing/heads/local has the mathematics.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "simd/multiply.hpp"

namespace overt::OVERT_LEVEL {

// TOGETHER: stretches processed together, so that matrices are read once for several.
constexpr Index TOGETHER = 24;
constexpr int MAX_TERMS = 32;
// SHARE: points that justify one more thread.
constexpr Index SHARE = 4096;

static void slide_clear(double* to, Index count) {
    for (Index i = 0; i < count; i++) to[i] = 0;
}

// The values of some stretches, (count, size), zeros beyond the ends of the series: read in place, or copied to `spare`.
static const double* slide_values(const Slide& task, Index stretch, Index count, double* spare) {
    Index first = stretch * task.size, stop = first + count * task.size;
    if (first >= 0 && stop <= task.count) return task.values + first;
    for (Index i = first; i < stop; i++) spare[i - first] = i >= 0 && i < task.count ? task.values[i] : 0;
    return spare;
}

static void slide_sums(const Slide& task, Index stretch, Index count, double* spare, double* sums) {
    const double* values = slide_values(task, stretch, count, spare);
    multiply(values, task.size, Index{1}, task.table, Index{task.terms}, sums, Index{task.terms}, static_cast<int>(count),
             static_cast<int>(task.size), task.terms, false);
}

// `sums` begins with those of the stretch `task.first` away from the first one.
static void slide_read(const Slide& task, Index stretch, Index count, const double* sums, double* spare, double* output) {
    int rows = static_cast<int>(count), size = static_cast<int>(task.size);
    double result[TOGETHER * MAX_TERMS];
    slide_clear(result, TOGETHER * MAX_TERMS);
    if (task.whole > 0)
        multiply(sums, Index{task.terms}, Index{1}, task.matrices, Index{task.terms}, result, Index{task.terms}, rows,
                 static_cast<int>(task.whole * task.terms), task.terms, false);
    multiply(result, Index{task.terms}, Index{1}, task.reading, task.size, output, task.size, rows, task.terms, size, false);
    for (int c = 0; c < task.cuts; c++) {
        const double* values = slide_values(task, stretch + task.cut[c], count, spare);
        const double* corner = task.corners + c * task.size * task.size;
        multiply(values, task.size, Index{1}, corner, task.size, output, task.size, rows, size, size, true);
    }
}

void slide(const Slide& task) {
    Index stretches = (task.count + task.size - 1) / task.size, groups = (stretches + TOGETHER - 1) / TOGETHER;
    Index before = max_of<Index>(0, -task.first), after = max_of<Index>(0, task.first + task.whole);
    Index part = TOGETHER * task.size, rows = before + stretches + after;
    int threads = static_cast<int>(min_of<Index>(task.threads, 1 + task.count / SHARE));
    Scratch<double> sums(rows * task.terms), spares(threads * 2 * part);
    slide_clear(sums.data, before * task.terms);
    slide_clear(sums.data + (before + stretches) * task.terms, after * task.terms);
    divide_items(groups, threads, [&](Index group, int thread) {
        Index stretch = group * TOGETHER, count = min_of(TOGETHER, stretches - stretch);
        slide_sums(task, stretch, count, spares.data + thread * 2 * part, sums.data + (before + stretch) * task.terms);
    });
    divide_items(groups, threads, [&](Index group, int thread) {
        Index stretch = group * TOGETHER, count = min_of(TOGETHER, stretches - stretch), first = stretch * task.size;
        bool whole = first + count * task.size <= task.count;
        double *spare = spares.data + thread * 2 * part, *output = whole ? task.output + first : spare + part;
        slide_read(task, stretch, count, sums.data + (before + stretch + task.first) * task.terms, spare, output);
        for (Index i = first; !whole && i < task.count; i++) task.output[i] = output[i - first];
    });
}

}  // namespace overt::OVERT_LEVEL
