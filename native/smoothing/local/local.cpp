// Local polynomial regression by time: overt/smoothing/heads/local has the mathematics.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "smoothing/local/boxes.hpp"

namespace overt::OVERT_LEVEL {

// SHARE: targets that a thread processes at a time.
constexpr Index SHARE = 512;
// BATCH: groups of boxes that are computed before their targets.
constexpr Index BATCH = 64;

// Writes the results of a vector of targets, or of the few that are left.
static void local_write(const Local& task, const LocalSums& sums, Index first, Index count) {
    if (task.raw) {
        for (int p = 0; p <= 2 * task.degree; p++)
            for (Index i = 0; i < count; i++) task.results[p * task.rows + first + i] = sums.weights[p][i];
        return;
    }
    LocalFit fit = local_fit(sums, task.degree);
    for (Index i = 0; i < count; i++) {
        task.results[first + i] = fit.value[i];
        task.results[task.rows + first + i] = fit.self_coefficient[i];
        task.results[2 * task.rows + first + i] = fit.squares[i];
    }
}

static void local_share(const Local& task, Index first, Index stop) {
    if (first >= stop) return;
    Reach reach(task, task.targets[first]);
    for (Index i = first; i < stop; i += WIDTH<double>) {
        Index count = min_of<Index>(WIDTH<double>, stop - i);
        LocalSums sums{};
        for (Index lane = 0; lane < count; lane++) {
            reach.move(task, task.targets[i + lane]);
            local_direct(task, task.targets[i + lane], reach, &sums, static_cast<int>(lane));
        }
        local_write(task, sums, i, count);
    }
}

// The targets of one box. Those whose weights are too small to be accurate are summed key by key.
static void local_box(const Local& task, const BoxPolynomials& polynomials, Index position, Index box, Index first, Index stop,
                      double threshold) {
    for (Index i = first; i < stop; i += WIDTH<double>) {
        Index count = min_of<Index>(WIDTH<double>, stop - i);
        LocalSums sums{};
        box_read(task, polynomials, position, box_positions(task, box, local_times(task.targets, i, stop)), &sums);
        for (Index lane = 0; lane < count && !task.raw; lane++) {
            if (sums.weights[0][lane] > threshold) continue;
            Reach reach(task, task.targets[i + lane]);
            local_direct(task, task.targets[i + lane], reach, &sums, static_cast<int>(lane));
        }
        local_write(task, sums, i, count);
    }
}

// Where the boxes begin among keys and among targets.
struct LocalStarts {
    const Index *keys, *targets;
};

// The targets first <= i < stop, which lie in boxes of groups from `group` on.
static void local_read(const Local& task, const LocalStarts& starts, const BoxSums& sums, Index margin,
                       const BoxPolynomials* polynomials, Index group, Index first, Index stop) {
    Index box = group * BOX_GROUP;
    while (starts.targets[box + 1] <= first) box++;
    for (; first < stop; box++) {
        Index end = min_of(stop, starts.targets[box + 1]);
        if (first == end) continue;
        local_box(task, polynomials[box / BOX_GROUP - group], box % BOX_GROUP, box, first, end,
                  box_threshold(task, margin + box, sums));
        first = end;
    }
}

// Groups of boxes in batches: first the polynomials of all boxes of a batch, then all its targets, so that a few full boxes keep all
// threads busy.
static void local_batches(const Local& task, const LocalStarts& starts, const BoxSums& sums, Index margin,
                          BoxPolynomials* polynomials) {
    Index groups = (task.boxes.count + BOX_GROUP - 1) / BOX_GROUP;
    for (Index batch = 0; batch < groups; batch += BATCH) {
        Index end = min_of(batch + BATCH, groups);
        Index begin = starts.targets[batch * BOX_GROUP], stop = starts.targets[min_of(end * BOX_GROUP, task.boxes.count)];
        share_items(end - batch, 1, task.threads, [&](Index offset, int) {
            Index group = batch + offset, first = group * BOX_GROUP, last = min_of(first + BOX_GROUP, task.boxes.count);
            if (starts.targets[first] < starts.targets[last])
                box_group(task, margin + first, last - first, sums, polynomials + offset);
        });
        share_items((stop - begin + SHARE - 1) / SHARE, 1, task.threads, [&](Index share, int) {
            Index first = begin + share * SHARE;
            local_read(task, starts, sums, margin, polynomials, batch, first, min_of(first + SHARE, stop));
        });
    }
}

static void local_by_boxes(const Local& task) {
    const Boxes& boxes = task.boxes;
    Index margin = boxes.reach + BOX_GROUP, rows = boxes.count + 2 * margin, size = rows * BOX_TERMS;
    Scratch<double> memory(3 * size);
    Scratch<BoxPolynomials> polynomials(min_of(BATCH, (boxes.count + BOX_GROUP - 1) / BOX_GROUP));
    Scratch<Index> keys(boxes.count + 1), targets(boxes.count + 1);
    BoxSums sums{memory.data, memory.data + size, memory.data + 2 * size};
    divide_items(boxes.count + 1, task.threads, [&](Index box, int) {
        keys.data[box] = box < boxes.count ? box_start(task, task.times, task.count, box) : task.count;
        targets.data[box] = box_start(task, task.targets, task.rows, box);
    });
    share_items(rows, 4, task.threads, [&](Index row, int) {
        Index box = row - margin;
        bool there = box >= 0 && box < boxes.count;
        box_sums(task, box, there ? keys.data[box] : 0, there ? keys.data[box + 1] : 0, row, sums);
    });
    local_batches(task, {keys.data, targets.data}, sums, margin, polynomials.data);
    local_share(task, 0, targets.data[0]);
    local_share(task, targets.data[boxes.count], task.rows);
}

void local(const Local& arguments) {
    Local task = arguments;
    // One more thread pays from 8 * SHARE targets on.
    task.threads = static_cast<int>(min_of<Index>(task.threads, 1 + task.rows / (8 * SHARE)));
    if (task.boxes.count > 0) return local_by_boxes(task);
    share_items((task.rows + SHARE - 1) / SHARE, 1, task.threads,
                [&](Index share, int) { local_share(task, share * SHARE, min_of((share + 1) * SHARE, task.rows)); });
}

}  // namespace overt::OVERT_LEVEL
