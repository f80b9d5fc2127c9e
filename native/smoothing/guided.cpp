// Attention whose scores compare a guide: the joint bilateral filter. Points are taken in stretches, each of which is paired with itself
// and the later ones in reach. One exponential serves both directions of a pair, and bandwidths whose ratio is a power of two.

#include "level.hpp"
#include "simd/parallel.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr Index STRETCH = 128;
// ABREAST: rows paired with a stretch at once, so that the sums of its points are read and written once for all of them.
constexpr int ABREAST = 2;
// MOMENTS of the weights: their sum, times x_j - x_i, times g_j - g_i, times both.
constexpr int MOMENTS = 4;
// FAINT: a row with a smaller sum of weights has no digits left, since all its keys are too far away.
constexpr double FAINT = 0x1p-900;
static_assert(STRETCH % (ABREAST * LANES) == 0, "stretches are whole vectors, and whole groups of rows");

// The series in whole stretches. Points beyond its end are infinitely late.
struct Points {
    double *times, *guide, *values, *weights;

    Points(const Guided& task, Index size, double* memory)
        : times(memory), guide(memory + size), values(guide + size), weights(values + size) {
        for (Index i = 0; i < size; i++) {
            bool there = i < task.count;
            times[i] = there ? task.times[i] : __builtin_inf();
            guide[i] = there ? task.guide[i] : 0;
            values[i] = there ? task.values[i] : 0;
            weights[i] = there && task.weights ? task.weights[i] : there;
        }
    }
};

// Which sums a pair adds to, the earlier point's, the later point's or both, and the reach: point i to those before stop_i.
struct Pass {
    bool ahead, behind;  // whether pairs add to the earlier point, and to the later one
    double reach;
    Index* stop;
    const double* table;  // the factor of time at each lag from -MARGIN on; nullptr: computed pair by pair
    static constexpr Index MARGIN = 2 * (LANES + ABREAST);

    bool joins(Index earlier, Index later) const { return earlier == later || stop[(earlier + 1) * STRETCH - 1] > later * STRETCH; }
};

// The passes of a side, with their memory.
struct Passes {
    Pass pass[2];
    int count;
    Scratch<Index> stops;
    Scratch<double> table;

    Passes(const Guided& task, const Points& points, Index size) : stops(2 * size), table(task.lags + 2 * Pass::MARGIN) {
        clear(table.data, task.lags + 2 * Pass::MARGIN);
        for (Index lag = 1; lag <= task.lags; lag++) table.data[Pass::MARGIN + lag] = task.table[lag];
        bool both = task.side == Side::both, past = task.side == Side::past;
        pass[0] = {!past, both || past, task.reach, stops.data, task.lags ? table.data : nullptr};
        // Points at the same time belong to both past and future of each other.
        pass[1] = {past, !past, 0, stops.data + size, nullptr};
        count = both ? 1 : 2;
        for (int p = 0; p < count; p++) find_stops(pass[p], points.times, size, task.lags);
    }

    static void find_stops(const Pass& pass, const double* times, Index size, Index lags) {
        Index stop = 0;
        for (Index i = 0; i < size; i++) {
            if (pass.table) {
                stop = i + lags + 1;
            } else {
                stop = max_of(stop, i);
                while (stop < size && times[stop] - times[i] <= pass.reach) stop++;
            }
            pass.stop[i] = min_of(stop, size);
        }
    }
};

// A thread's working memory.
struct PairWorkspace {
    Index behind_size;  // of one stretch
    double *factors, *similar, *ahead, *behind;

    static constexpr Index AHEAD = STRETCH * MOMENTS * LANES, BEHIND = STRETCH * MOMENTS;  // of one bandwidth

    static Index size(Index bandwidths, Index stretches) {
        return 2 * ABREAST * STRETCH + bandwidths * (AHEAD + stretches * BEHIND);
    }
    PairWorkspace(Index bandwidths, double* memory) : behind_size(bandwidths * BEHIND), factors(memory) {
        similar = factors + ABREAST * STRETCH;
        ahead = similar + ABREAST * STRETCH;  // sums of the current stretch's points over later ones, vector by vector
        behind = ahead + bandwidths * AHEAD;  // sums over earlier points, stretch by stretch
    }
};

// Some rows, from `row` on, and their keys in one stretch: `first` + from to `first` + to, in whole vectors.
struct RowsAndStretch {
    const Points& points;
    Index row, first, from, to;
    const double* factors[ABREAST];
};

void compute_factors(const RowsAndStretch& at, double rate, double reach, double* factors) {
    Similarity similarity(rate);
    const double* times = at.points.times + at.first;
    for (int r = 0; r < ABREAST; r++, factors += STRETCH) {
        Vector<double> time = broadcast(at.points.times[at.row + r]);
        for (Index j = at.from; j < at.to; j += LANES) {
            Vector<double> gap = load(times + j) - time;
            store<double>(factors + j, gap <= reach ? similarity.of(gap * gap) : Vector<double>{});
        }
        for (Index j = at.from; j <= at.row + r - at.first; j++) factors[j] = 0;  // a pair begins with its earlier point
    }
}

void compare(const RowsAndStretch& at, Similarity similarity, double* similar) {
    const double *guide = at.points.guide + at.first, *rows = at.points.guide + at.row;
    for (Index j = at.from, to = at.to; j < to; j += LANES)
        for (int r = 0; r < ABREAST; r++) {
            Vector<double> rise = load(guide + j) - broadcast(rows[r]);
            store<double>(similar + r * STRETCH + j, similarity.of(rise * rise));
        }
}

template <int TIMES>
void square(const RowsAndStretch& at, double* similar) {
    for (Index j = at.from, to = at.to; j < to; j += LANES)
        for (int r = 0; r < ABREAST; r++) {
            Vector<double> alike = load(similar + r * STRETCH + j);
            for (int t = 0; t < TIMES; t++) alike *= alike;
            store<double>(similar + r * STRETCH + j, alike);
        }
}

OVERT_INLINE void add_moments(Vector<double> weight, Vector<double> step, Vector<double> rise, Vector<double> both,
                              Vector<double>* to) {
    to[0] += weight;
    to[1] = multiply_add(weight, step, to[1]);
    to[2] = multiply_add(weight, rise, to[2]);
    to[3] = multiply_add(weight, both, to[3]);
}

template <bool WEIGHTED, bool AHEAD, bool BEHIND>
void add(const RowsAndStretch& at, const double* similar, double* ahead, double* behind) {
    const double *guide = at.points.guide + at.first, *values = at.points.values + at.first,
                 *key_weights = at.points.weights + at.first;
    const double *row_guide = at.points.guide + at.row, *row_values = at.points.values + at.row,
                 *row_weights = at.points.weights + at.row;
    const double* factors[ABREAST] = {at.factors[0], at.factors[1]};
    Vector<double> row_moments[ABREAST * MOMENTS] = {};
#pragma GCC unroll 8
    for (int m = 0; m < ABREAST * MOMENTS; m++)
        if (AHEAD) row_moments[m] = load(ahead + m * LANES);
    for (Index j = at.from, to = at.to; j < to; j += LANES) {
        Vector<double> key_moments[MOMENTS] = {};
#pragma GCC unroll 4
        for (int m = 0; m < MOMENTS; m++)
            if (BEHIND) key_moments[m] = load(behind + m * STRETCH + j);
#pragma GCC unroll 2
        for (int r = 0; r < ABREAST; r++) {
            Vector<double> weight = load(similar + r * STRETCH + j) * load(factors[r] + j);
            Vector<double> step = load(values + j) - broadcast(row_values[r]), rise = load(guide + j) - broadcast(row_guide[r]);
            Vector<double> both = step * rise;
            if (AHEAD) add_moments(WEIGHTED ? weight * load(key_weights + j) : weight, step, rise, both, row_moments + r * MOMENTS);
            if (BEHIND) add_moments(WEIGHTED ? weight * broadcast(row_weights[r]) : weight, -step, -rise, both, key_moments);
        }
#pragma GCC unroll 4
        for (int m = 0; m < MOMENTS; m++)
            if (BEHIND) store<double>(behind + m * STRETCH + j, key_moments[m]);
    }
#pragma GCC unroll 8
    for (int m = 0; m < ABREAST * MOMENTS; m++)
        if (AHEAD) store<double>(ahead + m * LANES, row_moments[m]);
}

using Add = void (*)(const RowsAndStretch&, const double*, double*, double*);

template <bool WEIGHTED>
Add add_for(bool ahead, bool behind) {
    return ahead && behind ? add<WEIGHTED, true, true> : ahead ? add<WEIGHTED, true, false> : add<WEIGHTED, false, true>;
}

// Pairs some rows with a stretch, bandwidth by bandwidth; `behind` holds the sums of that stretch's points.
void add_pairs_of_rows(const Guided& task, const RowsAndStretch& at, const PairWorkspace& workspace, double* behind, Add add) {
    double* ahead = workspace.ahead + at.row % STRETCH * MOMENTS * LANES;
    for (Index b = 0; b < task.bandwidths; b++) {
        switch (task.squarings[b]) {
            case 0: compare(at, Similarity(task.rates[b]), workspace.similar); break;
            case 1: square<1>(at, workspace.similar); break;
            case 2: square<2>(at, workspace.similar); break;
            case 3: square<3>(at, workspace.similar); break;
            default: square<4>(at, workspace.similar);
        }
        add(at, workspace.similar, ahead + b * PairWorkspace::AHEAD, behind + b * PairWorkspace::BEHIND);
    }
}

// Pairs the points of a stretch with those of the same or of a later one.
void add_pairs_of_stretches(const Guided& task, const Points& points, const Pass& pass, Index earlier, Index later,
                            const PairWorkspace& workspace, double* behind, Add add) {
    Index first = later * STRETCH;
    for (Index row = earlier * STRETCH; row < (earlier + 1) * STRETCH; row += ABREAST) {
        Index from = max_of<Index>(row + 1 - first, 0) / LANES * LANES, to = min_of(pass.stop[row + ABREAST - 1] - first, STRETCH);
        if (to <= from) continue;
        RowsAndStretch at{points, row, first, from, (to + LANES - 1) / LANES * LANES, {}};
        bool tabled = pass.table && first + STRETCH <= task.count;
        if (!tabled) compute_factors(at, task.rate_time, pass.reach, workspace.factors);
        for (int r = 0; r < ABREAST; r++)
            at.factors[r] = tabled ? pass.table + Pass::MARGIN + first - row - r : workspace.factors + r * STRETCH;
        add_pairs_of_rows(task, at, workspace, behind, add);
    }
}

// From the sums of one stretch and bandwidth, the weight on itself included, to outputs.
void finish_outputs(const Guided& task, const Points& points, Index stretch, Index bandwidth, const double* ahead,
                    const double* behind) {
    for (Index p = 0, i = stretch * STRETCH; p < STRETCH && i < task.count; p++, i++) {
        double sums[MOMENTS], key_weight = points.weights[i];
        for (int m = 0; m < MOMENTS; m++)
            sums[m] = behind[m * STRETCH + p] + sum<double>(load(ahead + (p * MOMENTS + m) * LANES));
        double total = key_weight + sums[0], shift = sums[1] / total;
        Index position = bandwidth * task.count + i;
        task.outputs[position] = total >= FAINT ? points.values[i] + shift : __builtin_nan("");
        task.self_weights[position] = key_weight / total;
        task.covariance[position] = sums[3] / total - shift * (sums[2] / total);
    }
}

// The outputs of the stretches first <= s < stop.
void attend(const Guided& task, const Points& points, const Passes& passes, Index first, Index stop, Index stretches,
            const PairWorkspace& workspace) {
    clear(workspace.behind, (stop - first) * workspace.behind_size);
    Index begin = first;
    while (begin > 0 && passes.pass[0].joins(begin - 1, first)) begin--;
    for (Index s = begin; s < stop; s++) {
        clear(workspace.ahead, task.bandwidths * PairWorkspace::AHEAD);
        for (int p = 0; p < passes.count; p++) {
            const Pass& pass = passes.pass[p];
            for (Index later = max_of(s, first); later < stretches && pass.joins(s, later); later++) {
                bool ahead = pass.ahead && s >= first, behind = pass.behind && later < stop;
                if (!ahead && !behind) continue;
                Add add = task.weights ? add_for<true>(ahead, behind) : add_for<false>(ahead, behind);
                add_pairs_of_stretches(task, points, pass, s, later, workspace,
                                       workspace.behind + (later - first) * workspace.behind_size, add);
            }
        }
        if (s < first) continue;
        for (Index b = 0; b < task.bandwidths; b++)
            finish_outputs(task, points, s, b, workspace.ahead + b * PairWorkspace::AHEAD,
                           workspace.behind + (s - first) * workspace.behind_size + b * PairWorkspace::BEHIND);
    }
}

}  // namespace

void guided(const Guided& task) {
    if (task.count == 0) return;
    Index stretches = (task.count + STRETCH - 1) / STRETCH, size = stretches * STRETCH;
    Scratch<double> columns(4 * size);
    Points points(task, size, columns.data);
    Passes passes(task, points, size);
    Index longest = 0;
    for (Index i = 0; i < task.count; i++) longest = max_of(longest, passes.pass[0].stop[i] - i);
    // Tiles are long compared with the window, whose pairs are computed twice at tile ends, and equally many for every thread.
    Index threads = min_of<Index>(task.threads, stretches), longest_tile = 32 * (1 + longest / STRETCH) * threads;
    Index tiles = (stretches + longest_tile - 1) / longest_tile * threads, tile = (stretches + tiles - 1) / tiles;
    Index workspace_size = PairWorkspace::size(task.bandwidths, tile);
    Scratch<double> memory(workspace_size * threads);
    share_items(tiles, 1, static_cast<int>(threads), [&](Index t, int thread) {
        PairWorkspace workspace(task.bandwidths, memory.data + workspace_size * thread);
        attend(task, points, passes, min_of(t * tile, stretches), min_of((t + 1) * tile, stretches), stretches, workspace);
    });
}

}  // namespace overt::OVERT_LEVEL
