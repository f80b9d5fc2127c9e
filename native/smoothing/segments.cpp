// The mean over all ways to divide a series into segments that are constant or straight, see overt/smoothing/selection/bank/segments.py.
// A vector holds several first points of the segment that is being extended.
#include <algorithm>
#include <cmath>

#include "level.hpp"
#include "simd/parallel.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr int LANES = WIDTH<double>;
using Lane = Vector<double>;
// PART: points that a thread processes at a time; MARGIN: points before and after them that it segments too.
constexpr Index PART = 4096, MARGIN = 512, POINTS = PART + 2 * MARGIN;
// MOST, RECENT, ROOM, HOPELESS: of ROOM possible starts of the last segment MOST remain: the last RECENT, and the likeliest others with a
// probability of HOPELESS or more. More starts change the curve by about a hundredth of the noise where nothing is sure, else by less.
constexpr int MOST = 40, RECENT = 16, ROOM = 56;
// FLAT: a segment has no slope if the variance of its times is smaller. NEGLIGIBLE: segments of a smaller probability are skipped.
constexpr double FLAT = 1e-6, NEGLIGIBLE = 1e-6, HOPELESS = 1e-12, TINY = 1e-100, NEVER = -1e300;
// SUMS over the points of a segment: of weights w, and of wt, wx, wtt, wtx, wxx.
constexpr int SUMS = 6;

// Running sums as pairs of numbers, so that the difference of two is as exact as the sum over the points between.
struct Running {
    double high[SUMS][POINTS + 1], low[SUMS][POINTS + 1];

    void append(Index at, double weight, double time, double value) {
        const double terms[SUMS] = {weight,        weight * time,         weight * value, weight * time * time, weight * time * value,
                                    weight * value * value};
        for (int k = 0; k < SUMS; k++) {
            double before = high[k][at], after = before + terms[k], part = after - before;
            high[k][at + 1] = after;
            low[k][at + 1] = low[k][at] + ((before - (after - part)) + (terms[k] - part));
        }
    }
};

// Statistics of the points of a segment: the weight, the mean time, sum of wx, and the sums of squares about the means.
struct Moments {
    Lane weight, time, total, mean, spread, slope, squares;
};

Moments moments_of(const Lane (&sums)[SUMS]) {
    Moments m;
    m.weight = lane_max(sums[0], broadcast(TINY));
    Lane inverse = 1 / m.weight;
    m.time = sums[1] * inverse, m.total = sums[2], m.mean = sums[2] * inverse;
    m.spread = lane_max(sums[3] - sums[1] * m.time, broadcast(FLAT) * m.weight);
    m.slope = sums[4] - sums[1] * m.mean;
    m.squares = lane_max(sums[5] - m.total * m.mean, Lane{});
    return m;
}

// A segment, with its probability given where it ends, if it is constant and if it is straight.
struct Pair {
    double constant, straight;
    Index start;
};

// Segments that end before the same point, with their probabilities if they are constant and if they are straight.
struct Group {
    Lane constant, straight;
    Index starts[LANES];
    int size;
};

// The probability of segments, and polynomials of degree 1 and 2 in the time from a point on: the mean of the curve, and that of its square.
constexpr int TERMS = 6;
struct Polynomials {
    double terms[TERMS];
    void add(const Polynomials& other) {
        for (int k = 0; k < TERMS; k++) terms[k] += other.terms[k];
    }
    void move(double step) {
        terms[1] += terms[2] * step;
        terms[3] += (terms[4] + terms[5] * step) * step;
        terms[4] += 2 * terms[5] * step;
    }
};

struct Memory {
    Running sums;
    double times[POINTS + 1];
    Polynomials changes[POINTS + 1];
    double ends[POINTS + 1];  // the probability that a segment ends before each point
    Index pairs[POINTS + 2];  // the first pair of each stop
    // The first points of the segment that is being extended, with the log of the mass before it.
    double starts[ROOM], mass[ROOM], base_high[SUMS][ROOM], base_low[SUMS][ROOM];
    double constant[ROOM], straight[ROOM], shrink[ROOM];
    int order[ROOM];
};

class Division {
   public:
    Division(const Segments& task, Index first, Index stop, Memory& memory, Pair* pairs)
        : task(task), first(first), count(stop - first), m(memory), pairs(pairs) {
        stay = std::log1p(-task.change), change = std::log(task.change);
    }

    void divide() {
        for (int k = 0; k < SUMS; k++) m.sums.high[k][0] = m.sums.low[k][0] = 0;
        double origin = task.times[first + count / 2];
        m.pairs[0] = m.pairs[1] = 0;
        // Lanes beyond the candidates have no mass, and must have sums that are numbers.
        std::fill(m.starts, m.starts + ROOM, 0.0);
        std::fill(&m.base_high[0][0], &m.base_high[0][0] + SUMS * ROOM, 0.0);
        std::fill(&m.base_low[0][0], &m.base_low[0][0] + SUMS * ROOM, 0.0);
        candidates = 0;
        begin(0, 0);
        for (Index t = 0; t < count; t++) {
            m.times[t] = task.times[first + t] - origin;
            m.sums.append(t, task.weights[first + t], m.times[t], task.values[first + t] - task.center);
            double total = extend(t + 1);
            if (candidates == ROOM) drop();
            if (t + 1 < count) begin(t + 1, total + change);
        }
        m.times[count] = m.times[count - 1];
    }

    // The probabilities of all segments, from the last to the first, as changes of the polynomials at their first and next points.
    void collect() {
        std::fill(m.ends, m.ends + count, 0.0);
        std::fill(m.changes, m.changes + count + 1, Polynomials{});
        m.ends[count] = 1;
        for (Index stop = count; stop > 0; stop--) {
            double ends = m.ends[stop];
            Lane at_stop[TERMS] = {};
            Group group{};
            for (Index p = m.pairs[stop]; p < m.pairs[stop + 1]; p++) {
                double constant = ends * pairs[p].constant, straight = ends * pairs[p].straight;
                m.ends[pairs[p].start] += constant + straight;
                if (constant + straight < NEGLIGIBLE) continue;
                group.constant[group.size] = constant, group.straight[group.size] = straight, group.starts[group.size++] = pairs[p].start;
                if (group.size < LANES) continue;
                add(group, stop, at_stop);
                group = Group{};
            }
            if (group.size > 0) add(group, stop, at_stop);
            for (int k = 0; k < TERMS; k++) m.changes[stop].terms[k] -= sum<double>(at_stop[k]);
        }
    }

    void write(Index from, Index to) {
        Polynomials at{};
        for (Index t = 0; t < to - first; t++) {
            if (t > 0) at.move(m.times[t] - m.times[t - 1]);
            at.add(m.changes[t]);
            if (first + t < from) continue;
            double mean = at.terms[1] / at.terms[0];
            task.values_to[first + t] = task.center + mean;
            task.variances_to[first + t] = max_of(at.terms[3] / at.terms[0] - mean * mean, 0.0);
        }
    }

    // The weights of one point, without those from the center.
    void write_row(Index row) {
        double mass = 0;
        for (Index stop = row + 1; stop <= count; stop++)
            for (Index p = m.pairs[stop]; p < m.pairs[stop + 1]; p++) {
                double constant = m.ends[stop] * pairs[p].constant, straight = m.ends[stop] * pairs[p].straight;
                if (pairs[p].start > row || constant + straight < NEGLIGIBLE) continue;
                double sums[SUMS];
                for (int k = 0; k < SUMS; k++) sums[k] = difference(k, pairs[p].start, stop);
                double weight = max_of(sums[0], TINY), middle = sums[1] / weight, spread = max_of(sums[3] - sums[1] * middle, FLAT * weight);
                double variance = task.prior / (1 + weight * task.prior), level = (constant + straight) * variance;
                double slope = straight * variance * weight / spread * (m.times[row] - middle);
                mass += constant + straight;
                for (Index j = pairs[p].start; j < stop; j++)
                    task.row_to[first + j] += task.weights[first + j] * (level + slope * (m.times[j] - middle));
            }
        for (Index j = 0; j < count; j++) task.row_to[first + j] /= mass;
    }

   private:
    const Segments& task;
    const Index first, count;
    Memory& m;
    Pair* const pairs;
    double stay, change;
    int candidates = 0;

    double difference(int k, Index start, Index stop) const {
        return (m.sums.high[k][stop] - m.sums.high[k][start]) + (m.sums.low[k][stop] - m.sums.low[k][start]);
    }

    void begin(Index start, double mass) {
        int c = candidates++;
        m.starts[c] = static_cast<double>(start), m.mass[c] = mass - static_cast<double>(start + 1) * stay;
        for (int k = 0; k < SUMS; k++) m.base_high[k][c] = m.sums.high[k][start], m.base_low[k][c] = m.sums.low[k][start];
    }

    // Weighs the segments from each first point up to `stop`, keeps them, and returns the log of the mass of all.
    double extend(Index stop) {
        Lane highest = broadcast(NEVER);
        for (int c = candidates; c % LANES; c++) m.mass[c] = NEVER;
        for (int c = 0; c < candidates; c += LANES) {
            Lane sums[SUMS];
            for (int k = 0; k < SUMS; k++)
                sums[k] = (broadcast(m.sums.high[k][stop]) - load(m.base_high[k] + c)) + (broadcast(m.sums.low[k][stop]) - load(m.base_low[k] + c));
            Moments of = moments_of(sums);
            // 1 / (1 + weight * prior) and 1 / spread, by one division.
            Lane grown = multiply_add(of.weight, broadcast(task.prior), broadcast(1.0)), inverse = 1 / (grown * of.spread);
            Lane shrink = inverse * of.spread;
            Lane level = load(m.mass + c) - 0.5 * multiply_add(of.total * of.mean, shrink, of.squares);
            Lane gain = broadcast(0.5 * task.prior) * of.slope * of.slope * of.weight * inverse;
            Lane straight = of.spread > broadcast(1.5 * FLAT) * of.weight ? level + gain : broadcast(NEVER);
            straight = load(m.starts + c) < broadcast(static_cast<double>(stop) - 2.5) ? straight : broadcast(NEVER);
            store(m.constant + c, level), store(m.straight + c, straight), store(m.shrink + c, shrink);
            highest = lane_max(highest, lane_max(level, straight));
        }
        Lane top = broadcast(horizontal_max<double>(highest)), masses{};
        for (int c = 0; c < candidates; c += LANES) {
            Lane shrink = load(m.shrink + c), root = square_root(shrink);
            Lane constant = root * exponential<double>(load(m.constant + c) - top);
            Lane straight = shrink * exponential<double>(load(m.straight + c) - top);
            masses += constant + straight;
            store(m.constant + c, constant), store(m.straight + c, straight);
        }
        double total = sum<double>(masses), share = 1 / total;
        for (int c = 0; c < candidates; c += LANES)
            store(m.constant + c, load(m.constant + c) * broadcast(share)), store(m.straight + c, load(m.straight + c) * broadcast(share));
        Index pair = m.pairs[stop];
        for (int c = 0; c < candidates; c++) {
            if (m.constant[c] + m.straight[c] >= HOPELESS)
                pairs[pair++] = {m.constant[c], m.straight[c], static_cast<Index>(m.starts[c])};
        }
        m.pairs[stop + 1] = pair;
        return top[0] + std::log(0.5 * total) + static_cast<double>(stop) * stay;
    }

    // Keeps the last RECENT first points, about which little is known, and the most probable of the others, in order.
    void drop() {
        int others = candidates - RECENT, most = MOST - RECENT;
        for (int c = 0; c < candidates; c++) m.order[c] = c;
        auto weight = [&](int c) { return m.constant[c] + m.straight[c]; };
        std::nth_element(m.order, m.order + most, m.order + others, [&](int a, int b) {
            return weight(a) > weight(b) || (weight(a) == weight(b) && a < b);
        });
        most = static_cast<int>(std::partition(m.order, m.order + most, [&](int c) { return weight(c) >= HOPELESS; }) - m.order);
        std::sort(m.order, m.order + most);
        for (int c = others; c < candidates; c++) m.order[most++] = c;
        for (int c = 0; c < most; c++) {
            int from = m.order[c];
            m.starts[c] = m.starts[from], m.mass[c] = m.mass[from];
            for (int k = 0; k < SUMS; k++) m.base_high[k][c] = m.base_high[k][from], m.base_low[k][c] = m.base_low[k][from];
        }
        candidates = most;
    }

    void add(const Group& group, Index stop, Lane (&at_stop)[TERMS]) {
        Lane sums[SUMS], offset, terms[TERMS];
        for (int k = 0; k < SUMS - 1; k++)
            for (int l = 0; l < LANES; l++) sums[k][l] = difference(k, group.starts[l], stop);
        sums[SUMS - 1] = Lane{};
        Moments of = moments_of(sums);
        Lane prior = broadcast(task.prior), variance = prior / (1 + of.weight * prior), level = variance * of.total;
        Lane of_slope = variance * of.weight / of.spread, slope = of_slope * of.slope;
        auto polynomials_from = [&](Lane time) {
            Lane from = time - of.time, square = group.straight * multiply_add(slope, slope, of_slope), cross = 2 * group.straight * slope * level;
            terms[0] = group.constant + group.straight;
            terms[2] = group.straight * slope, terms[1] = multiply_add(terms[0], level, terms[2] * from);
            terms[3] = terms[0] * multiply_add(level, level, variance) + multiply_add(square, from, cross) * from;
            terms[4] = multiply_add(2 * square, from, cross), terms[5] = square;
        };
        polynomials_from(broadcast(m.times[stop]));
        for (int k = 0; k < TERMS; k++) at_stop[k] += terms[k];
        for (int l = 0; l < LANES; l++) offset[l] = m.times[group.starts[l]];
        polynomials_from(offset);
        for (int l = 0; l < group.size; l++)
            for (int k = 0; k < TERMS; k++) m.changes[group.starts[l]].terms[k] += terms[k][l];
    }
};

}  // namespace

void segments(const Segments& task) {
    Index parts = (task.count + PART - 1) / PART, points = min_of(task.count, POINTS);
    int threads = static_cast<int>(min_of<Index>(task.threads, parts));
    Scratch<Memory> memory(threads);
    Scratch<Pair> pairs(threads * points * ROOM);
    share_items(parts, 1, threads, [&](Index part, int thread) {
        Index from = part * PART, to = min_of(from + PART, task.count);
        if (task.row >= 0 && (task.row < from || task.row >= to)) return;
        Index first = max_of<Index>(from - MARGIN, 0), stop = min_of(to + MARGIN, task.count);
        Division division(task, first, stop, memory.data[thread], pairs.data + thread * points * ROOM);
        division.divide();
        division.collect();
        if (task.row < 0)
            division.write(from, to);
        else
            division.write_row(task.row - first);
    });
}

}  // namespace overt::OVERT_LEVEL
