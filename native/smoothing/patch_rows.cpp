// Attention whose scores compare patches, row by row: at the ends of a series, where a patch may contain a point twice, and far from all
// keys, where weights are computed relative to the largest.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// One row's keys first <= j < first + count.
struct Row {
    const PatchRows& task;
    Index i, first, count;
    double *distances, *pulls, *weights;  // pulls: half of the distances' derivatives in x_i

    // Padded to whole vectors.
    static Index length(const PatchRows& task) { return 2 * task.patch.window + 1 + LANES; }

    Row(const PatchRows& arguments, Index row, double* memory) : task(arguments), i(row) {
        const Patch& patch = task.patch;
        first = max_of<Index>(i - patch.window, 0);
        count = 1 + (patch.past ? i : min_of(i + patch.window, patch.count - 1)) - first;
        distances = memory, pulls = distances + length(task), weights = pulls + length(task);
        clear(memory, 3 * length(task));
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
    // Where x_i is part of the patches of keys: key j has it at m = position - j.
    for (Index position = row.first; position < row.first + row.count + 2 * patch.half; position++) {
        if (row.task.source[position] != row.i) continue;
        for (Index m = 0; m <= 2 * patch.half; m++) {
            Index j = position - m - row.first;
            if (j >= 0 && j < row.count) row.pulls[j] -= patch.profile[m] * (patch.padded[row.i + m] - patch.padded[position]);
        }
    }
}

// Weights relative to the largest of the keys with any weight; returns their sum.
double weigh(Row& row, double rate) {
    const double* key_weights = row.task.patch.key_weights ? row.task.patch.key_weights + row.first : nullptr;
    double nearest = __builtin_inf(), total = 0;
    for (Index j = 0; j < row.count; j++)
        if (!key_weights || key_weights[j] > 0) nearest = min_of(nearest, row.distances[j]);
    Similarity similarity(rate);
    for (Index j = 0; j < row.count; j += LANES)  // keys nearer than any allowed key have weight 0 in the end
        store<double>(row.weights + j, similarity.of(lane_max(load(row.distances + j) - broadcast(nearest), Vector<double>{})));
    for (Index j = 0; j < row.count; j++) total += row.weights[j] *= key_weights ? key_weights[j] : 1;
    return total;
}

void attend(Row& row, Index bandwidth, Index to) {
    const Patch& patch = row.task.patch;
    double rate = patch.rates[bandwidth], total = weigh(row, rate), shift = 0, pull = 0;
    const double* x = patch.padded + patch.half;
    for (Index j = 0; j < row.count; j++) shift += row.weights[j] * (x[row.first + j] - x[row.i]);
    shift /= total;
    for (Index j = 0; j < row.count; j++) pull += row.weights[j] * row.pulls[j] * (x[row.first + j] - x[row.i] - shift);
    double self_weight = row.weights[row.i - row.first] / total, nan = __builtin_nan("");
    patch.values[to] = total > 0 ? x[row.i] + shift : nan;
    patch.slopes[to] = total > 0 ? self_weight - 2 * rate * pull / total : nan;
    patch.self_weights[to] = total > 0 ? self_weight : nan;
}

}  // namespace

void patch_rows(const PatchRows& task) {
    Index size = 3 * Row::length(task);
    int threads = static_cast<int>(min_of<Index>(task.patch.threads, 1 + task.count / 64));
    Scratch<double> memory(size * threads);
    share_items(task.count, 16, threads, [&](Index r, int thread) {
        Row row(task, task.rows[r], memory.data + size * thread);
        lay_out(row);
        for (Index b = 0; b < task.patch.bandwidths; b++) attend(row, b, b * task.count + r);
    });
}

}  // namespace overt::OVERT_LEVEL
