// Attention by time and value, row by row: of one side only, or of points that are not keys themselves.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// SHARE: rows that a thread processes at a time.
constexpr Index SHARE = 256;

// One row's keys, padded to whole vectors with keys at infinite distance.
struct Row {
    double *steps, *weights;
    Index count;          // whole vectors
    double min_distance;  // the smallest distance
};

// Steps x_j - x_i, and distances in the array of weights.
Row lay_out(const BilateralRows& task, Index i, double* memory, Index longest) {
    const WeightedPoints& keys = task.keys;
    Index start = task.start[i], keyed = task.stop[i] - start;
    Row row{memory, memory + longest, (keyed + LANES - 1) / LANES * LANES, __builtin_inf()};
    double time = task.times[i], value = task.values[i];
    for (Index j = 0; j < keyed; j++) {
        double gap = keys.times[start + j] - time, step = keys.values[start + j] - value;
        row.steps[j] = step;
        row.weights[j] = gap * gap * keys.rate_time + step * step * keys.rate_value;
    }
    for (Index j = keyed; j < row.count; j++) row.steps[j] = 0, row.weights[j] = __builtin_inf();
    Vector<double> nearest = broadcast(__builtin_inf());
    for (Index j = 0; j < row.count; j += LANES) nearest = lane_min(nearest, load(row.weights + j));
    for (int l = 0; l < LANES; l++) row.min_distance = min_of(row.min_distance, nearest[l]);
    return row;
}

void attend_row(const BilateralRows& task, Index i, double* memory, Index longest) {
    const PairResults& results = task.results;
    if (task.start[i] >= task.stop[i]) {
        results.values[i] = results.self_weights[i] = results.variance[i] = __builtin_nan("");
        return;
    }
    Row row = lay_out(task, i, memory, longest);
    const double* key_weights = task.keys.weights ? task.keys.weights + task.start[i] : nullptr;
    Similarity similarity(1.0);
    for (Index j = 0; j < row.count; j += LANES)
        store<double>(row.weights + j, similarity.of(load(row.weights + j) - broadcast(row.min_distance)));
    if (key_weights)
        for (Index j = 0; j < task.stop[i] - task.start[i]; j++) row.weights[j] *= key_weights[j];
    Vector<double> total = {}, first = {}, second = {};
    for (Index j = 0; j < row.count; j += LANES) {
        total += load(row.weights + j);
        first = multiply_add(load(row.weights + j), load(row.steps + j), first);
    }
    double all = sum<double>(total), shift = sum<double>(first) / all;
    for (Index j = 0; j < row.count; j += LANES) {
        Vector<double> off = load(row.steps + j) - broadcast(shift);
        second = multiply_add(load(row.weights + j) * off, off, second);
    }
    results.values[i] = task.values[i] + shift;
    // A key's distance from itself is 0, the smallest.
    results.self_weights[i] = task.self_index[i] < 0 ? 0 : (task.keys.weights ? task.keys.weights[task.self_index[i]] : 1) / all;
    results.variance[i] = sum<double>(second) / all;
}

}  // namespace

void bilateral_rows(const BilateralRows& task) {
    Index longest = 0;
    for (Index i = 0; i < task.count; i++) longest = max_of(longest, task.stop[i] - task.start[i]);
    longest += LANES;
    int threads = static_cast<int>(min_of<Index>(task.threads, 1 + task.count / SHARE));
    Scratch<double> memory(2 * longest * threads);
    share_items(task.count, SHARE, threads,
                [&](Index i, int thread) { attend_row(task, i, memory.data + 2 * longest * thread, longest); });
}

}  // namespace overt::OVERT_LEVEL
