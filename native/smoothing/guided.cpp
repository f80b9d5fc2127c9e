// Attention whose scores compare a guide: the joint bilateral filter. Points are taken in stretches, each of which meets itself and
// the later ones that it reaches; one exponential serves both directions of a pair, and bandwidths that are powers of two apart.
#include <omp.h>

#include "level.hpp"
#include "smoothing/pair_sums.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr Index STRETCH = 128;
// Rows that meet a stretch at once: what its points get is then read and written once for all of them.
constexpr int ABREAST = 2;
// Of the weights: their sum, times x_j - x_i, times g_j - g_i, times both.
constexpr int MOMENTS = 4;
// Below this a row's weights have no digits left: its keys are all too far away.
constexpr double FAINT = 0x1p-900;
static_assert(STRETCH % (ABREAST * LANES) == 0, "stretches are whole vectors, and whole groups of rows");

// The series in whole stretches. Points beyond its end are infinitely late.
struct Points {
    double *times, *guide, *values, *weights;

    Points(const Guided& task, Index size, double* room) : times(room), guide(room + size), values(guide + size), weights(values + size) {
        for (Index i = 0; i < size; i++) {
            bool there = i < task.count;
            times[i] = there ? task.times[i] : __builtin_inf();
            guide[i] = there ? task.guide[i] : 0;
            values[i] = there ? task.values[i] : 0;
            weights[i] = there && task.weights ? task.weights[i] : there;
        }
    }
};

// What each point gives to later ones, to earlier ones or to both, and how far: point i to those before stop_i.
struct Pass {
    bool ahead, behind;  // whether earlier points get something from those ahead, and later ones from those behind
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
        // Points at one time belong to each other's past and future.
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
                stop = most(stop, i);
                while (stop < size && times[stop] - times[i] <= pass.reach) stop++;
            }
            pass.stop[i] = least(stop, size);
        }
    }
};

// A thread's memory.
struct Desk {
    Index behind_room;  // of one stretch
    double *factors, *similar, *ahead, *behind;

    static constexpr Index AHEAD = STRETCH * MOMENTS * LANES, BEHIND = STRETCH * MOMENTS;  // of one bandwidth

    static Index room(Index bandwidths, Index stretches) { return 2 * ABREAST * STRETCH + bandwidths * (AHEAD + stretches * BEHIND); }
    Desk(Index bandwidths, double* memory) : behind_room(bandwidths * BEHIND), factors(memory) {
        similar = factors + ABREAST * STRETCH;
        ahead = similar + ABREAST * STRETCH;  // what the points of the stretch at hand get from later ones, vector by vector
        behind = ahead + bandwidths * AHEAD;  // what points got, stretch by stretch
    }
};

// Some rows, from `row` on, and the points of a stretch that they meet: those from `first` + from to `first` + to, in whole vectors.
struct Meeting {
    const Points& points;
    Index row, first, from, to;
    const double* factors[ABREAST];
};

void lay_out_factors(const Meeting& at, double rate, double reach, double* factors) {
    Similarity similarity(rate);
    const double* times = at.points.times + at.first;
    for (int r = 0; r < ABREAST; r++, factors += STRETCH) {
        Vector<double> time = every(at.points.times[at.row + r]);
        for (Index j = at.from; j < at.to; j += LANES) {
            Vector<double> gap = load(times + j) - time;
            store<double>(factors + j, gap <= reach ? similarity.of(gap * gap) : Vector<double>{});
        }
        for (Index j = at.from; j <= at.row + r - at.first; j++) factors[j] = 0;  // pairs begin with the earlier point
    }
}

void compare(const Meeting& at, Similarity similarity, double* similar) {
    const double *guide = at.points.guide + at.first, *rows = at.points.guide + at.row;
    for (Index j = at.from, to = at.to; j < to; j += LANES)
        for (int r = 0; r < ABREAST; r++) {
            Vector<double> rise = load(guide + j) - every(rows[r]);
            store<double>(similar + r * STRETCH + j, similarity.of(rise * rise));
        }
}

template <int TIMES>
void square(const Meeting& at, double* similar) {
    for (Index j = at.from, to = at.to; j < to; j += LANES)
        for (int r = 0; r < ABREAST; r++) {
            Vector<double> alike = load(similar + r * STRETCH + j);
            for (int t = 0; t < TIMES; t++) alike *= alike;
            store<double>(similar + r * STRETCH + j, alike);
        }
}

OVERT_INLINE void add_moments(Vector<double> weight, Vector<double> step, Vector<double> rise, Vector<double> both, Vector<double>* to) {
    to[0] += weight;
    to[1] = fused(weight, step, to[1]);
    to[2] = fused(weight, rise, to[2]);
    to[3] = fused(weight, both, to[3]);
}

template <bool CHARGED, bool AHEAD, bool BEHIND>
void add(const Meeting& at, const double* similar, double* ahead, double* behind) {
    const double *guide = at.points.guide + at.first, *values = at.points.values + at.first, *charges = at.points.weights + at.first;
    const double *row_guide = at.points.guide + at.row, *row_values = at.points.values + at.row, *row_charges = at.points.weights + at.row;
    const double* factors[ABREAST] = {at.factors[0], at.factors[1]};
    Vector<double> kept[ABREAST * MOMENTS] = {};
#pragma GCC unroll 8
    for (int m = 0; m < ABREAST * MOMENTS; m++)
        if (AHEAD) kept[m] = load(ahead + m * LANES);
    for (Index j = at.from, to = at.to; j < to; j += LANES) {
        Vector<double> got[MOMENTS] = {};
#pragma GCC unroll 4
        for (int m = 0; m < MOMENTS; m++)
            if (BEHIND) got[m] = load(behind + m * STRETCH + j);
#pragma GCC unroll 2
        for (int r = 0; r < ABREAST; r++) {
            Vector<double> weight = load(similar + r * STRETCH + j) * load(factors[r] + j);
            Vector<double> step = load(values + j) - every(row_values[r]), rise = load(guide + j) - every(row_guide[r]);
            Vector<double> both = step * rise;
            if (AHEAD) add_moments(CHARGED ? weight * load(charges + j) : weight, step, rise, both, kept + r * MOMENTS);
            if (BEHIND) add_moments(CHARGED ? weight * every(row_charges[r]) : weight, -step, -rise, both, got);
        }
#pragma GCC unroll 4
        for (int m = 0; m < MOMENTS; m++)
            if (BEHIND) store<double>(behind + m * STRETCH + j, got[m]);
    }
#pragma GCC unroll 8
    for (int m = 0; m < ABREAST * MOMENTS; m++)
        if (AHEAD) store<double>(ahead + m * LANES, kept[m]);
}

using Add = void (*)(const Meeting&, const double*, double*, double*);

template <bool CHARGED>
Add add_for(bool ahead, bool behind) {
    return ahead && behind ? add<CHARGED, true, true> : ahead ? add<CHARGED, true, false> : add<CHARGED, false, true>;
}

// Some rows meet a stretch, bandwidth by bandwidth; `behind` is what that stretch's points get.
void meet_rows(const Guided& task, const Meeting& at, const Desk& desk, double* behind, Add add) {
    double* ahead = desk.ahead + at.row % STRETCH * MOMENTS * LANES;
    for (Index b = 0; b < task.bandwidths; b++) {
        switch (task.squarings[b]) {
            case 0: compare(at, Similarity(task.rates[b]), desk.similar); break;
            case 1: square<1>(at, desk.similar); break;
            case 2: square<2>(at, desk.similar); break;
            case 3: square<3>(at, desk.similar); break;
            default: square<4>(at, desk.similar);
        }
        add(at, desk.similar, ahead + b * Desk::AHEAD, behind + b * Desk::BEHIND);
    }
}

// The points of a stretch meet those of the same or of a later one.
void meet(const Guided& task, const Points& points, const Pass& pass, Index earlier, Index later, const Desk& desk, double* behind,
          Add add) {
    Index first = later * STRETCH;
    for (Index row = earlier * STRETCH; row < (earlier + 1) * STRETCH; row += ABREAST) {
        Index from = most<Index>(row + 1 - first, 0) / LANES * LANES, to = least(pass.stop[row + ABREAST - 1] - first, STRETCH);
        if (to <= from) continue;
        Meeting at{points, row, first, from, (to + LANES - 1) / LANES * LANES, {}};
        bool tabled = pass.table && first + STRETCH <= task.count;
        if (!tabled) lay_out_factors(at, task.rate_time, pass.reach, desk.factors);
        for (int r = 0; r < ABREAST; r++)
            at.factors[r] = tabled ? pass.table + Pass::MARGIN + first - row - r : desk.factors + r * STRETCH;
        meet_rows(task, at, desk, behind, add);
    }
}

// Sums of one stretch and bandwidth, own weight included, become outputs.
void settle(const Guided& task, const Points& points, Index stretch, Index bandwidth, const double* ahead, const double* behind) {
    for (Index p = 0, i = stretch * STRETCH; p < STRETCH && i < task.count; p++, i++) {
        double sums[MOMENTS], charge = points.weights[i];
        for (int m = 0; m < MOMENTS; m++)
            sums[m] = behind[m * STRETCH + p] + sum<double>(load(ahead + (p * MOMENTS + m) * LANES));
        double total = charge + sums[0], shift = sums[1] / total;
        Index place = bandwidth * task.count + i;
        task.outputs[place] = total >= FAINT ? points.values[i] + shift : __builtin_nan("");
        task.own[place] = charge / total;
        task.covariance[place] = sums[3] / total - shift * (sums[2] / total);
    }
}

// The outputs of the stretches first <= s < stop.
void attend(const Guided& task, const Points& points, const Passes& passes, Index first, Index stop, Index stretches, const Desk& desk) {
    clear(desk.behind, (stop - first) * desk.behind_room);
    Index begin = first;
    while (begin > 0 && passes.pass[0].joins(begin - 1, first)) begin--;
    for (Index s = begin; s < stop; s++) {
        clear(desk.ahead, task.bandwidths * Desk::AHEAD);
        for (int p = 0; p < passes.count; p++) {
            const Pass& pass = passes.pass[p];
            for (Index later = most(s, first); later < stretches && pass.joins(s, later); later++) {
                bool ahead = pass.ahead && s >= first, behind = pass.behind && later < stop;
                if (!ahead && !behind) continue;
                Add add = task.weights ? add_for<true>(ahead, behind) : add_for<false>(ahead, behind);
                meet(task, points, pass, s, later, desk, desk.behind + (later - first) * desk.behind_room, add);
            }
        }
        if (s < first) continue;
        for (Index b = 0; b < task.bandwidths; b++)
            settle(task, points, s, b, desk.ahead + b * Desk::AHEAD, desk.behind + (s - first) * desk.behind_room + b * Desk::BEHIND);
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
    for (Index i = 0; i < task.count; i++) longest = most(longest, passes.pass[0].stop[i] - i);
    // Tiles are long beside the window, whose pairs are compared twice at their ends, and as many for every thread.
    Index threads = least<Index>(task.threads, stretches), longest_tile = 32 * (1 + longest / STRETCH) * threads;
    Index tiles = (stretches + longest_tile - 1) / longest_tile * threads, tile = (stretches + tiles - 1) / tiles;
    Index room = Desk::room(task.bandwidths, tile);
    Scratch<double> memory(room * threads);
#pragma omp parallel for schedule(dynamic) num_threads(static_cast<int>(threads))
    for (Index t = 0; t < tiles; t++) {
        Desk desk(task.bandwidths, memory.data + room * omp_get_thread_num());
        attend(task, points, passes, least(t * tile, stretches), least((t + 1) * tile, stretches), stretches, desk);
    }
}

}  // namespace overt::OVERT_LEVEL
