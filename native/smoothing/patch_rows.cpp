// Attention whose scores compare patches, row by row: at the series' ends, where a patch may hold a point twice, and far from all keys,
// where weights are taken relative to the largest.
#include <omp.h>

#include "level.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// One row's keys first <= j < first + count, as numbers of their own.
struct Row {
    const PatchRows& task;
    Index i, first, count;
    double *distances, *pulls, *weights;  // pulls: half of the distances' derivatives in x_i

    // Room for whole vectors.
    static Index length(const PatchRows& task) { return 2 * task.patch.window + 1 + LANES; }

    Row(const PatchRows& given, Index row, double* room) : task(given), i(row) {
        const Patch& patch = task.patch;
        first = most<Index>(i - patch.window, 0);
        count = 1 + (patch.past ? i : least(i + patch.window, patch.count - 1)) - first;
        distances = room, pulls = distances + length(task), weights = pulls + length(task);
        clear(room, 3 * length(task));
    }
};

void lay_out(Row& row) {
    const Patch& patch = row.task.patch;
    for (Index m = 0; m <= 2 * patch.half; m++) {
        double g = patch.profile[m], here = patch.padded[row.i + m];
        const double* there = patch.padded + row.first + m;
        for (Index j = 0; j < row.count; j++) row.distances[j] += g * (here - there[j]) * (here - there[j]);
        if (row.task.source[row.i + m] != row.i) continue;
        for (Index j = 0; j < row.count; j++) row.pulls[j] += g * (here - there[j]);
    }
    // Where x_i stands in the patches of keys: key j has it at m = place - j.
    for (Index place = row.first; place < row.first + row.count + 2 * patch.half; place++) {
        if (row.task.source[place] != row.i) continue;
        for (Index m = 0; m <= 2 * patch.half; m++) {
            Index j = place - m - row.first;
            if (j >= 0 && j < row.count) row.pulls[j] -= patch.profile[m] * (patch.padded[row.i + m] - patch.padded[place]);
        }
    }
}

// Weights relative to the largest, of a key that has any; their sum.
double weigh(Row& row, double rate) {
    const double* charges = row.task.patch.charges ? row.task.patch.charges + row.first : nullptr;
    double nearest = __builtin_inf(), total = 0;
    for (Index j = 0; j < row.count; j++)
        if (!charges || charges[j] > 0) nearest = least(nearest, row.distances[j]);
    Similarity similarity(rate);
    for (Index j = 0; j < row.count; j += LANES)  // what is nearer than any key has no weight in the end
        store<double>(row.weights + j, similarity.of(larger(load(row.distances + j) - every(nearest), Vector<double>{})));
    for (Index j = 0; j < row.count; j++) total += row.weights[j] *= charges ? charges[j] : 1;
    return total;
}

void attend(Row& row, Index bandwidth, Index to) {
    const Patch& patch = row.task.patch;
    double rate = patch.rates[bandwidth], total = weigh(row, rate), shift = 0, pull = 0;
    const double* x = patch.padded + patch.half;
    for (Index j = 0; j < row.count; j++) shift += row.weights[j] * (x[row.first + j] - x[row.i]);
    shift /= total;
    for (Index j = 0; j < row.count; j++) pull += row.weights[j] * row.pulls[j] * (x[row.first + j] - x[row.i] - shift);
    double own = row.weights[row.i - row.first] / total, nan = __builtin_nan("");
    patch.values[to] = total > 0 ? x[row.i] + shift : nan;
    patch.slopes[to] = total > 0 ? own - 2 * rate * pull / total : nan;
    patch.own[to] = total > 0 ? own : nan;
}

}  // namespace

void patch_rows(const PatchRows& task) {
    Index room = 3 * Row::length(task);
    int threads = static_cast<int>(least<Index>(task.patch.threads, 1 + task.count / 64));
    Scratch<double> memory(room * threads);
#pragma omp parallel for schedule(dynamic, 16) num_threads(threads)
    for (Index r = 0; r < task.count; r++) {
        Row row(task, task.rows[r], memory.data + room * omp_get_thread_num());
        lay_out(row);
        for (Index b = 0; b < task.patch.bandwidths; b++) attend(row, b, b * task.count + r);
    }
}

}  // namespace overt::OVERT_LEVEL
