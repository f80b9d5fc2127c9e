// The smoothing kernels of pairs by their definitions, in plain loops, for check.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "smoothing/smoothing.hpp"

namespace overt {

struct PairProblem {
    Index count, window;
    bool past, weighted;
    std::vector<double> profile;
    std::vector<double> rates{0.4, 0.2, 0.07};  // the first by squaring
    std::vector<double> times, values, weights, padded;
    std::vector<Index> source, rows, start, stop, self_index;

    PairProblem(Index count, Index window, bool past, bool weighted, Index half)
        : count(count), window(window), past(past), weighted(weighted), profile(2 * half + 1, 0.3) {
        std::mt19937 generator(7);
        std::uniform_real_distribution<double> random(0.2, 2);
        for (Index m = 0; m <= 2 * half; m++) profile[m] = past && m > half ? 0 : half < 8 ? 0.3 * random(generator) : 0.3;
        double time = 0;
        for (Index i = 0; i < count; i++) {
            times.push_back(time += random(generator));
            values.push_back(random(generator) + (i % 50 < 20 ? 1 : 0));
            weights.push_back(weighted ? random(generator) : 1);
            rows.push_back(i), self_index.push_back(i);
            start.push_back(std::max<Index>(i - window, 0)), stop.push_back(past ? i + 1 : std::min(i + window + 1, count));
        }
        for (Index p = -half; p < count + half; p++) {
            Index period = std::max<Index>(2 * (count - 1), 1), reflected = ((p % period) + period) % period;
            source.push_back(past ? std::min(std::max<Index>(p, 0), count - 1) : std::min(reflected, period - reflected));
            padded.push_back(values[source.back()]);
        }
    }

    Index half() const { return static_cast<Index>(profile.size()) / 2; }

    double patch_distance(Index i, Index j, double* pull) const {
        double distance = 0;
        for (Index m = 0; m < static_cast<Index>(profile.size()); m++) {
            double step = padded[i + m] - padded[j + m];
            distance += profile[m] * step * step;
            *pull += profile[m] * step * ((source[i + m] == i) - (source[j + m] == i));
        }
        return distance;
    }
};

// Values, weights on itself, variances and slopes of one row: keys j in [start, stop) with score(j, &pull).
template <class Score>
std::vector<double> reference_row(const PairProblem& p, Index i, Index start, Index stop, double rate, Score score) {
    double total = 0, output = 0, variance = 0, pulled = 0;
    std::vector<double> weight, pull;
    for (Index j = start; j < stop; j++) {
        pull.push_back(0);
        weight.push_back(p.weights[j] * std::exp(-rate * score(j, &pull.back())));
        total += weight.back(), output += weight.back() * p.values[j];
    }
    output /= total;
    for (Index j = start; j < stop; j++) {
        double step = p.values[j] - output, share = weight[j - start] / total;
        variance += share * step * step, pulled += share * step * pull[j - start];
    }
    double self_weight = p.weights[i] / total;
    return {output, self_weight, variance, self_weight - 2 * rate * pulled};
}

// compare(what, computed, expected)
template <class Compare>
void check_patches(const Smoothing& kernels, const PairProblem& p, const std::string& name, Compare compare) {
    Index bandwidths = static_cast<Index>(p.rates.size()), all = bandwidths * p.count;
    std::vector<double> expected[3], computed[3], by_row[3];
    for (int c = 0; c < 3; c++) expected[c].resize(all), computed[c].resize(all, NAN), by_row[c].resize(all, NAN);
    Patch task{p.padded.data(),
               p.weighted ? p.weights.data() : nullptr,
               p.count,
               p.half(),
               p.profile.data(),
               p.rates.data(),
               bandwidths,
               p.window,
               p.past,
               computed[0].data(),
               computed[1].data(),
               computed[2].data(),
               2};
    kernels.patch(task);
    task.values = by_row[0].data(), task.slopes = by_row[1].data(), task.self_weights = by_row[2].data();
    kernels.patch_rows({task, p.source.data(), p.rows.data(), p.count});
    for (Index k = 0; k < all; k++) {
        Index i = k % p.count;
        auto row = reference_row(p, i, p.start[i], p.stop[i], p.rates[k / p.count],
                             [&](Index j, double* pull) { return p.patch_distance(i, j, pull); });
        expected[0][k] = row[0], expected[1][k] = row[3], expected[2][k] = row[1];
        bool end = !p.past && (i <= p.half() || i >= p.count - 1 - p.half());
        if (end) computed[1][k] = row[3];  // there the slopes come from the kernel by rows
    }
    const char* columns[] = {"values", "slopes", "own weights"};
    for (int c = 0; c < 3; c++) {
        compare(name + " patch " + columns[c], computed[c], expected[c]);
        compare(name + " patch by rows " + columns[c], by_row[c], expected[c]);
    }
}

template <class Compare>
void check_bilateral(const Smoothing& kernels, const PairProblem& p, const std::string& name, Compare compare) {
    double rate_time = 0.001, rate_value = 0.8, reach = static_cast<double>(p.window);
    std::vector<double> expected[3], by_row[3], mutual[3], everyone[3];
    for (auto* columns : {expected, by_row, mutual, everyone})
        for (int c = 0; c < 3; c++) columns[c].resize(p.count, NAN);
    WeightedPoints points{p.times.data(), p.values.data(), p.weighted ? p.weights.data() : nullptr, p.count, rate_time, rate_value};
    kernels.bilateral({points, reach, {mutual[0].data(), mutual[1].data(), mutual[2].data()}, 2});
    kernels.bilateral_rows({points, p.times.data(), p.values.data(), p.start.data(), p.stop.data(), p.self_index.data(), p.count,
                            {by_row[0].data(), by_row[1].data(), by_row[2].data()}, 2});
    for (Index i = 0; i < p.count; i++) {
        auto score = [&](Index j, double*) {
            double gap = p.times[i] - p.times[j], step = p.values[i] - p.values[j];
            return rate_time * gap * gap + rate_value * step * step;
        };
        Index first = i, stop = i;
        while (first > 0 && p.times[i] - p.times[first - 1] <= reach) first--;
        while (stop < p.count && p.times[stop] - p.times[i] <= reach) stop++;
        auto near = reference_row(p, i, first, stop, 1, score), ranged = reference_row(p, i, p.start[i], p.stop[i], 1, score);
        for (int c = 0; c < 3; c++) everyone[c][i] = near[c], expected[c][i] = ranged[c];
    }
    const char* columns[] = {"values", "own weights", "variances"};
    for (int c = 0; c < 3; c++) {
        compare(name + " bilateral " + columns[c], mutual[c], everyone[c]);
        compare(name + " bilateral by rows " + columns[c], by_row[c], expected[c]);
    }
}

// The empirical Wiener filter with every cosine in a loop, window by window.
struct WienerProblem {
    const double pi = 3.14159265358979323846;
    Index count, length;
    std::vector<Index> starts;
    std::vector<double> values, squares, pilot, taper, spectrum, mean_leverages, factors;

    WienerProblem(Index count, Index length, Index step, bool alike) : count(count), length(length) {
        for (Index start = 0; start < count - length; start += step) starts.push_back(start);
        starts.push_back(count - length);
        std::mt19937 generator(11);
        std::uniform_real_distribution<double> random(0.2, 2);
        for (Index i = 0; i < count; i++) {
            values.push_back(random(generator)), squares.push_back(alike ? 0.3 : random(generator));
            pilot.push_back(2 * std::sin(0.2 * static_cast<double>(i)) + 0.3 * values.back());
        }
        for (Index i = 0; i < length; i++) taper.push_back(random(generator)), mean_leverages.push_back(random(generator));
        for (Index k = 1; k < length; k++) spectrum.push_back(random(generator));
        for (Index size = length; size > 1; size /= 2)
            for (Index i = 0; i < size / 2; i++) factors.push_back(0.5 / std::cos(pi / size * (i + 0.5)));
    }

    double cosine(Index k, Index i) const { return std::sqrt(2.0 / length) * std::cos(pi / length * k * (i + 0.5)); }

    // Adds one window to the weighted values, weighted leverages and weights.
    void add_window(Index start, std::vector<double> (&sums)[3]) const {
        std::vector<double> filtered(length), leverages(mean_leverages);
        double risk = 0;
        for (Index i = 0; i < length; i++) filtered[0] += values[start + i] / length;
        std::fill(filtered.begin() + 1, filtered.end(), filtered[0]);
        for (Index k = 1; k < length; k++) {
            double noisy = 0, smooth = 0, noise = 0;
            for (Index i = 0; i < length; i++) {
                noisy += cosine(k, i) * values[start + i], smooth += cosine(k, i) * pilot[start + i];
                noise += cosine(k, i) * cosine(k, i) * squares[start + i] * spectrum[k - 1];
            }
            double power = smooth * smooth, signal = std::max(power - noise * power / (power + noise), 0.0), both = signal + noise;
            double gain = signal / both, slope = 2 * smooth * noisy * noise / (both * both) * std::sqrt(gain);
            risk += gain * spectrum[k - 1];
            for (Index i = 0; i < length; i++) {
                filtered[i] += cosine(k, i) * gain * noisy;
                leverages[i] += cosine(k, i) * cosine(k, i) * (gain + slope) * spectrum[k - 1];
            }
        }
        for (Index i = 0; i < length; i++) {
            double weight = taper[i] * std::exp(-risk / 2);
            sums[0][start + i] += weight * filtered[i], sums[1][start + i] += weight * leverages[i], sums[2][start + i] += weight;
        }
    }
};

template <class Compare>
void check_wiener(const Smoothing& kernels, const std::string& level, Compare compare) {
    const Index shapes[][3] = {{16, 16, 1}, {70, 16, 3}, {300, 64, 4}, {300, 256, 16}, {17000, 32, 8}};  // points, a window's, step
    for (const Index(&shape)[3] : shapes)
        for (bool alike : {true, false}) {
            WienerProblem p(shape[0], shape[1], shape[2], alike);
            std::vector<double> sums[3], computed[2];
            for (auto& column : sums) column.resize(p.count);
            for (auto& column : computed) column.resize(p.count, NAN);
            kernels.wiener({p.values.data(), p.squares.data(), p.pilot.data(), p.count, alike, p.length, p.starts.data(),
                            static_cast<Index>(p.starts.size()), p.taper.data(), p.spectrum.data(), p.mean_leverages.data(), p.factors.data(), computed[0].data(), computed[1].data(), 2});
            for (Index start : p.starts) p.add_window(start, sums);
            for (int c = 0; c < 2; c++)
                for (Index i = 0; i < p.count; i++) sums[c][i] /= sums[2][i];
            std::string name = level + ", " + std::to_string(p.count) + " points, windows of " + std::to_string(p.length);
            compare(name + " filtered values", computed[0], sums[0]);
            compare(name + " leverages", computed[1], sums[1]);
        }
}

// All divisions of few points into segments, each with its own sums.
struct SegmentProblem {
    std::vector<double> times, values, weights;
    double change = 0.1, prior = 4, center = 0.3;
    Index count;

    explicit SegmentProblem(Index points, bool missing) : count(points) {
        std::mt19937 generator(8);
        std::uniform_real_distribution<double> random(0.2, 2);
        double time = 0;
        for (Index i = 0; i < count; i++) {
            times.push_back(time += random(generator)), values.push_back((i > count / 3 ? 5 : -2) + 0.1 * time + random(generator));
            weights.push_back(missing && i % 7 == 3 ? 0 : random(generator));
        }
    }

    // Mass, and the curve and the mean of its square at each point, of one segment that is constant or straight.
    double segment(Index start, Index stop, bool straight, std::vector<double>& curve, std::vector<double>& square) const {
        double weight = 1e-100, mean_time = 0, total = 0, spread = 0, slope = 0, misfit = 0;
        for (Index i = start; i < stop; i++) weight += weights[i], mean_time += weights[i] * times[i], total += weights[i] * (values[i] - center);
        mean_time /= weight;
        for (Index i = start; i < stop; i++) {
            double time = times[i] - mean_time, value = values[i] - center;
            spread += weights[i] * time * time, slope += weights[i] * time * (value - total / weight);
            misfit += weights[i] * (value - total / weight) * (value - total / weight);
        }
        double shrink = 1 / (1 + weight * prior), variance = prior * shrink;
        double mass = 0.5 * std::sqrt(shrink) * std::exp(-0.5 * (misfit + total * total * shrink / weight));
        bool possible = stop - start > 2 && spread > 1.5e-6 * weight;
        double of_slope = straight && possible ? variance * weight / spread : 0;
        if (straight) mass *= possible ? std::sqrt(shrink) * std::exp(0.5 * slope * slope * of_slope) : 0;
        for (Index i = start; i < stop; i++) {
            double time = times[i] - mean_time;
            curve[i] = variance * total + of_slope * slope * time;
            square[i] = variance + of_slope * time * time + curve[i] * curve[i];
        }
        return mass;
    }

    // Posterior means and variances; segments of less probability than 1e-6 are left out, as in the kernel.
    void expected(std::vector<double>& means, std::vector<double>& variances) const {
        std::vector<double> before(count + 1, 0), after(count + 1, 0), total(count, 0), curve(count), square(count);
        auto chance = [&](Index start, Index stop) { return std::pow(1 - change, static_cast<double>(stop - start - 1)); };
        auto mass = [&](Index start, Index stop) { return segment(start, stop, false, curve, square) + segment(start, stop, true, curve, square); };
        before[0] = after[count] = 1;
        for (Index stop = 1; stop <= count; stop++)
            for (Index start = 0; start < stop; start++) before[stop] += before[start] * (start ? change : 1) * chance(start, stop) * mass(start, stop);
        for (Index start = count - 1; start >= 0; start--)
            for (Index stop = start + 1; stop <= count; stop++) after[start] += mass(start, stop) * chance(start, stop) * (stop < count ? change : 1) * after[stop];
        means.assign(count, 0), variances.assign(count, 0);
        for (Index stop = 1; stop <= count; stop++)
            for (Index start = 0; start < stop; start++) {
                double outside = before[start] * (start ? change : 1) * chance(start, stop) * (stop < count ? change : 1) * after[stop] / before[count];
                if (outside * mass(start, stop) < 1e-6) continue;
                for (bool straight : {false, true}) {
                    double probability = outside * segment(start, stop, straight, curve, square);
                    for (Index i = start; i < stop; i++)
                        total[i] += probability, means[i] += probability * curve[i], variances[i] += probability * square[i];
                }
            }
        for (Index i = 0; i < count; i++) {
            means[i] /= total[i], variances[i] = variances[i] / total[i] - means[i] * means[i];
            means[i] += center;
        }
    }
};

template <class Compare>
void check_segments(const Smoothing& kernels, const std::string& level, Compare compare) {
    for (Index points : {1, 2, 3, 40})
        for (bool missing : {false, true}) {
            SegmentProblem p(points, missing);
            std::vector<double> means, variances, computed[2], row(points, 0.0);
            for (auto& column : computed) column.resize(points, NAN);
            Segments task{p.times.data(), p.values.data(), p.weights.data(), points, p.change, p.prior, p.center, computed[0].data(), computed[1].data(), 2, -1, nullptr};
            kernels.segments(task);
            p.expected(means, variances);
            std::string name = level + ", segments of " + std::to_string(points) + " points";
            compare(name + ": means", computed[0], means);
            compare(name + ": variances", computed[1], variances);
            task.row = points / 2, task.row_to = row.data();
            kernels.segments(task);
            std::vector<double> by_row{p.center};
            for (Index i = 0; i < points; i++) by_row[0] += row[i] * (p.values[i] - p.center);
            compare(name + ": a row", by_row, {computed[0][points / 2]});
        }
}

template <class Compare>
void check_pairs(const Smoothing& kernels, const std::string& level, Compare compare) {
    const Index shapes[][3] = {{1, 3, 2}, {70, 1, 0}, {300, 40, 3}, {700, 90, 11}, {600, 900, 1}};  // points, window, half a patch
    for (const Index(&shape)[3] : shapes)
        for (int form = 0; form < 4; form++) {
            PairProblem problem(shape[0], shape[1], form % 2, form / 2, shape[2]);
            std::string name = level + ", " + std::to_string(shape[0]) + " points, " + (form % 2 ? "past" : "both sides");
            check_patches(kernels, problem, name, compare);
            check_bilateral(kernels, problem, name, compare);
        }
}

}  // namespace overt
