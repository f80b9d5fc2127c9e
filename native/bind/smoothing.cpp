// The smoothing kernels in the module.
#include "bind/smoothing.hpp"

#include <nanobind/stl/vector.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bind/series.hpp"

namespace overt {
namespace {

void filter(Numbers values, Numbers taps, Index before, int threads, Outputs output) {
    Index count = values.shape(0), after = static_cast<Index>(taps.shape(0)) - 1 - before;
    if (before < 0 || after < 0) throw std::invalid_argument("Expected before to be the index of one of the taps.");
    expect(output, count, "Expected one output for each value.");
    Filter task{values.data(), count, taps.data(), before, after, output.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().filter(task);
}

// Patches of several series of one length, which share everything but their values, weights and rates.
struct Patches {
    Patch first;  // of the first series, without its outputs
    const Matrices &padded, &rates;
    const std::optional<Matrices>& key_weights;
    const OutputStack &values, &slopes, &self_weights;

    Patches(const Matrices& padded_values, const std::optional<Matrices>& weights, const Numbers& profile, const Matrices& of_rates,
            Index window, bool past, const OutputStack& values_to, const OutputStack& slopes_to, const OutputStack& self_weights_to)
        : padded(padded_values), rates(of_rates), key_weights(weights), values(values_to), slopes(slopes_to), self_weights(self_weights_to) {
        Index half = static_cast<Index>(profile.shape(0)) / 2, count = static_cast<Index>(padded.shape(1)) - 2 * half;
        if (profile.shape(0) % 2 == 0 || count < 1 || window < 0)
            throw std::invalid_argument("Expected a profile of odd length, a series of one point or more and a window of 0 or more.");
        if (key_weights) expect_matrix(*key_weights, padded.shape(0), count);
        expect(rates, padded.shape(0), "Expected the rates of each series.");
        first = {padded.data(), key_weights ? key_weights->data() : nullptr, count, half, profile.data(), rates.data(),
                 static_cast<Index>(rates.shape(1)), window, past, nullptr, nullptr, nullptr, 1};
    }
    void expect_results(Index rows) const {
        for (const OutputStack* stack : {&values, &slopes, &self_weights})
            expect_stack(*stack, padded.shape(0), first.bandwidths, rows, "Expected results of shape (series, bandwidths, rows).");
    }
    Patch of(Index series, int threads) const {
        Patch task = first;
        task.padded += series * static_cast<Index>(padded.shape(1)), task.rates += series * first.bandwidths;
        if (key_weights) task.key_weights += series * first.count;
        task.values = of_series(values, series), task.slopes = of_series(slopes, series);
        task.self_weights = of_series(self_weights, series), task.threads = threads;
        return task;
    }
};

void patch(Matrices padded, std::optional<Matrices> key_weights, Numbers profile, Matrices rates, Index window, bool past, int threads,
           OutputStack values, OutputStack slopes, OutputStack self_weights) {
    Patches patches(padded, key_weights, profile, rates, window, past, values, slopes, self_weights);
    patches.expect_results(patches.first.count);
    for_each_series(padded.shape(0), threads, [&](Index s, int each) { kernels().patch(patches.of(s, each)); });
}

void patch_rows(Matrices padded, Indices source, std::optional<Matrices> key_weights, Numbers profile, Matrices rates, Index window,
                bool past, Indices rows, int threads, OutputStack values, OutputStack slopes, OutputStack self_weights) {
    Patches patches(padded, key_weights, profile, rates, window, past, values, slopes, self_weights);
    expect(source, static_cast<Index>(padded.shape(1)), "Expected one source for each padded value.");
    Index count = rows.shape(0);
    for (Index r = 0; r < count; r++)
        if (rows.data()[r] < 0 || rows.data()[r] >= patches.first.count)
            throw std::invalid_argument("Expected rows to be indices of points of the series.");
    patches.expect_results(count);
    for_each_series(padded.shape(0), threads, [&](Index s, int each) {
        kernels().patch_rows({patches.of(s, each), source.data(), rows.data(), count});
    });
}

void slide(Numbers values, Matrices table, Matrices reading, Index first, Matrices matrices, const std::vector<Index>& cut,
           Numbers corners, int threads, Outputs output) {
    Index size = table.shape(0), terms = table.shape(1), rows = matrices.shape(0);
    if (size < 8 || size % 8 || terms < 8 || terms % 8 || terms > 32)
        throw std::invalid_argument("Expected size and terms to be multiples of 8, with at most 32 terms.");
    if (static_cast<Index>(reading.shape(0)) != terms || static_cast<Index>(reading.shape(1)) != size)
        throw std::invalid_argument("Expected reading of shape (terms, size).");
    if (static_cast<Index>(matrices.shape(1)) != terms || rows % terms)
        throw std::invalid_argument("Expected matrices of shape (whole * terms, terms).");
    expect(corners, static_cast<Index>(cut.size()) * size * size, "Expected one corner for each cut.");
    expect(output, values.shape(0), "Expected one output for each value.");
    Slide task{values.data(), static_cast<Index>(values.shape(0)), size, static_cast<int>(terms), table.data(), reading.data(),
               first, rows / terms, matrices.data(), cut.data(), static_cast<int>(cut.size()), corners.data(),
               output.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().slide(task);
}

WeightedPoints weighted_points(const Numbers& times, const Numbers& values, const std::optional<Numbers>& weights, double rate_time,
                               double rate_value) {
    Index count = times.shape(0);
    expect(values, count, "Expected one value for each time.");
    if (weights) expect(*weights, count, "Expected one weight for each time.");
    return {times.data(), values.data(), weights ? weights->data() : nullptr, count, rate_time, rate_value};
}

PairResults results(const Outputs& values, const Outputs& self_weights, const Outputs& variance, Index count) {
    for (const Outputs* column : {&values, &self_weights, &variance}) expect(*column, count, "Expected one result for each row.");
    return {values.data(), self_weights.data(), variance.data()};
}

void bilateral(Numbers times, Numbers values, std::optional<Numbers> weights, double rate_time, double rate_value, double reach,
               int threads, Outputs outputs, Outputs self_weights, Outputs variance) {
    WeightedPoints points = weighted_points(times, values, weights, rate_time, rate_value);
    Bilateral task{points, reach, results(outputs, self_weights, variance, points.count), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().bilateral(task);
}

void bilateral_rows(Numbers times, Numbers values, std::optional<Numbers> weights, double rate_time, double rate_value,
                    Numbers row_times, Numbers row_values, Indices start, Indices stop, Indices self_index, int threads,
                    Outputs outputs, Outputs self_weights, Outputs variance) {
    Index count = row_times.shape(0);
    expect(row_values, count, "Expected one value for each row.");
    for (const Indices* column : {&start, &stop, &self_index}) expect(*column, count, "Expected one index for each row.");
    WeightedPoints keys = weighted_points(times, values, weights, rate_time, rate_value);
    for (Index i = 0; i < count; i++)
        if (start.data()[i] < 0 || stop.data()[i] > keys.count || self_index.data()[i] >= keys.count)
            throw std::invalid_argument("Expected rows to attend to existing keys.");
    BilateralRows task{keys, row_times.data(), row_values.data(), start.data(), stop.data(), self_index.data(), count,
              results(outputs, self_weights, variance, count), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().bilateral_rows(task);
}

void local(Numbers times, Numbers values, std::optional<Numbers> weights, Numbers targets, double bandwidth, double reach,
           double window, int side, int degree, bool raw, double origin, double width, Index boxes, Numbers matrices,
           Numbers squares, Numbers largest, int threads, Outputs results) {
    Index count = times.shape(0), rows = targets.shape(0), powers = 2 * degree + 1, terms = 24;
    expect(values, count, "Expected one value for each time.");
    if (weights) expect(*weights, count, "Expected one weight for each time.");
    if (side < 0 || side > 2 || degree < 0 || degree > 2) throw std::invalid_argument("Expected side and degree to be 0, 1 or 2.");
    expect(results, (raw ? powers : 3) * rows, "Expected three numbers for each target, or with raw one for each power.");
    Index spans = largest.shape(0), squares_spans = static_cast<Index>(squares.shape(0)) / (terms * terms * powers);
    if (spans % 2 == 0 || squares_spans % 2 == 0 || squares_spans > spans)
        throw std::invalid_argument("Expected boxes to reach equally far on both sides.");
    expect(matrices, spans * terms * terms * powers, "Expected matrices of shape (spans, 24, powers, 24).");
    Local task{times.data(), values.data(), weights ? weights->data() : nullptr, count, targets.data(), rows, 1 / bandwidth, reach,
               window, static_cast<Side>(side), degree, raw,
               {boxes, origin, width, spans / 2, squares_spans / 2, matrices.data(), squares.data(), largest.data()},
               results.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().local(task);
}

void guided(Numbers times, Matrices guide, Matrices values, std::optional<Matrices> weights, double rate_time, double reach,
            Numbers table, Matrices rates, Indices squarings, int side, int threads, OutputStack outputs, OutputStack self_weights,
            OutputStack covariance) {
    Index series = guide.shape(0), count = times.shape(0), bandwidths = rates.shape(1);
    for (const Matrices* column : {&guide, &values, weights ? &*weights : &values}) expect_matrix(*column, series, count);
    expect(rates, series, "Expected the rates of each series.");
    expect(squarings, bandwidths, "Expected one number of squarings for each bandwidth.");
    for (const OutputStack* stack : {&outputs, &self_weights, &covariance})
        expect_stack(*stack, series, bandwidths, count, "Expected results of shape (series, bandwidths, values).");
    if (side < 0 || side > 2) throw std::invalid_argument("Expected a side of 0, 1 or 2.");
    if (bandwidths > 0 && squarings.data()[0]) throw std::invalid_argument("Expected no squarings for the first bandwidth.");
    Index lags = table.shape(0) ? static_cast<Index>(table.shape(0)) - 1 : 0;
    for_each_series(series, threads, [&](Index s, int each) {
        kernels().guided({times.data(),
                          guide.data() + s * count,
                          values.data() + s * count,
                          weights ? weights->data() + s * count : nullptr,
                          count,
                          rate_time,
                          reach,
                          table.data(),
                          lags,
                          rates.data() + s * bandwidths,
                          squarings.data(),
                          bandwidths,
                          static_cast<Side>(side),
                          of_series(outputs, s),
                          of_series(self_weights, s),
                          of_series(covariance, s),
                          each});
    });
}

Bank bank(const Matrices& values, const Matrices& slopes, const std::optional<Matrices>& variances) {
    for (const Matrices* column : {&slopes, variances ? &*variances : &values})
        if (column->shape(0) != values.shape(0) || column->shape(1) != values.shape(1))
            throw std::invalid_argument("Expected slopes and variances of shape (heads, points), like values.");
    return {values.data(), slopes.data(), variances ? variances->data() : nullptr, static_cast<Index>(values.shape(0)),
            static_cast<Index>(values.shape(1))};
}

void risks(Stack values, Stack slopes, Matrices observed, Matrices sharpness, double premium, Index step, bool running, int threads,
           OutputStack sums) {
    Index series = values.shape(0), heads = values.shape(1), count = values.shape(2);
    for (const Stack* stack : {&values, &slopes})
        expect_stack(*stack, series, heads, count, "Expected slopes of shape (series, heads, points), like values.");
    for (const Matrices* column : {&observed, &sharpness}) expect_matrix(*column, series, count);
    if (step < 1) throw std::invalid_argument("Expected blocks of one point or more.");
    expect_stack(sums, series, heads, running ? count : (count + step - 1) / step,
                 "Expected sums of shape (series, heads, blocks), or (series, heads, points) where they are running.");
    for_each_series(series, threads, [&](Index s, int each) {
        Bank bank{of_series(values, s), of_series(slopes, s), nullptr, heads, count};
        kernels().risks({bank, observed.data() + s * count, sharpness.data() + s * count, premium, step, running,
                         of_series(sums, s), each});
    });
}

Mixtures mixtures(const Bank& heads, std::size_t count, const OutputMatrices& values, const OutputMatrices& slopes,
                  const std::optional<OutputMatrices>& variances) {
    if (variances.has_value() != (heads.variances != nullptr))
        throw std::invalid_argument("Expected variances of the heads and of their mixtures, or of neither.");
    for (const OutputMatrices* column : {&values, &slopes, variances ? &*variances : &values})
        if (column->shape(0) != count || static_cast<Index>(column->shape(1)) != heads.count)
            throw std::invalid_argument("Expected mixtures of shape (mixtures, points).");
    return {values.data(), slopes.data(), variances ? variances->data() : nullptr, static_cast<int>(count)};
}

Index blocks_of(const Matrices& table, const Bank& heads, Index step) {
    if (static_cast<Index>(table.shape(0)) != heads.heads || table.shape(1) < 1 || step < 1)
        throw std::invalid_argument("Expected shares of shape (heads, blocks).");
    return table.shape(1);
}

void blend(Stack values, Stack slopes, std::optional<Stack> variances, Matrices sharpness, const std::vector<Stack>& weights,
           const std::vector<Matrices>& stiffness, const std::vector<Index>& steps, int threads, OutputStack mixed_values,
           OutputStack mixed_slopes, std::optional<OutputStack> mixed_variances) {
    Index series = values.shape(0), heads = values.shape(1), count = values.shape(2), sets = weights.size();
    for (const Stack* stack : {&values, &slopes, variances ? &*variances : &values})
        expect_stack(*stack, series, heads, count, "Expected slopes and variances of shape (series, heads, points), like values.");
    expect_matrix(sharpness, series, count);
    if (variances.has_value() != mixed_variances.has_value())
        throw std::invalid_argument("Expected variances of the heads and of their mixtures, or of neither.");
    for (const OutputStack* stack : {&mixed_values, &mixed_slopes, mixed_variances ? &*mixed_variances : &mixed_values})
        expect_stack(*stack, series, sets, count, "Expected mixtures of shape (series, mixtures, points).");
    if (stiffness.size() != weights.size() || steps.size() != weights.size())
        throw std::invalid_argument("Expected shares of three parts.");
    for (std::size_t s = 0; s < weights.size(); s++) {
        expect_stack(weights[s], series, heads, weights[s].shape(2), "Expected shares of shape (series, heads, blocks).");
        if (weights[s].shape(2) < 1 || steps[s] < 1) throw std::invalid_argument("Expected shares of one block or more.");
        expect_matrix(stiffness[s], series, weights[s].shape(2));
    }
    for_each_series(series, threads, [&](Index s, int each) {
        std::vector<Shares> shares;
        for (std::size_t w = 0; w < weights.size(); w++) {
            Index blocks = weights[w].shape(2);
            shares.push_back({of_series(weights[w], s), stiffness[w].data() + s * blocks, blocks, steps[w]});
        }
        Bank bank{of_series(values, s), of_series(slopes, s), variances ? of_series(*variances, s) : nullptr, heads, count};
        Mixtures mixtures{of_series(mixed_values, s), of_series(mixed_slopes, s),
                          mixed_variances ? of_series(*mixed_variances, s) : nullptr, static_cast<int>(sets)};
        kernels().blend({bank, sharpness.data() + s * count, shares.data(), nullptr, mixtures, each});
    });
}

void blend_past(Matrices values, Matrices slopes, std::optional<Matrices> variances, Numbers sharpness, const std::vector<Matrices>& before,
                Matrices within, const std::vector<Numbers>& coldness, Index step, int threads, OutputMatrices mixed_values,
                OutputMatrices mixed_slopes, std::optional<OutputMatrices> mixed_variances) {
    Bank heads = bank(values, slopes, variances);
    expect(sharpness, heads.count, "Expected one number for each point.");
    bank(values, within, std::nullopt);
    if (coldness.size() != before.size()) throw std::invalid_argument("Expected shares of two parts.");
    std::vector<PastShares> shares;
    for (std::size_t s = 0; s < before.size(); s++) {
        Index blocks = blocks_of(before[s], heads, step);
        expect(coldness[s], heads.count, "Expected one coldness for each point.");
        if (blocks * step < heads.count) throw std::invalid_argument("Expected a block for every point.");
        shares.push_back({before[s].data(), within.data(), coldness[s].data(), blocks, step});
    }
    Blend task{heads,
               sharpness.data(),
               nullptr,
               shares.data(),
               mixtures(heads, shares.size(), mixed_values, mixed_slopes, mixed_variances),
               at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().blend(task);
}

void wiener(Matrices values, Matrices squares, Matrices pilot, Indices starts, Numbers taper, Numbers spectrum, Numbers mean_leverages,
            Numbers factors, int threads, OutputMatrices values_to, OutputMatrices leverages_to) {
    Index series = values.shape(0), count = values.shape(1), length = taper.shape(0);
    for (const Matrices* column : {&squares, &pilot}) expect_matrix(*column, series, count);
    for (const OutputMatrices* column : {&values_to, &leverages_to})
        if (static_cast<Index>(column->shape(0)) != series || static_cast<Index>(column->shape(1)) != count)
            throw std::invalid_argument("Expected one result for each point, series by series.");
    if (length < 16 || length > 1024 || (length & (length - 1)) || length > count)
        throw std::invalid_argument("Expected windows of 16, 32, ... 1024 points, at most those of the series.");
    const Index *first = starts.data(), *stop = first + starts.shape(0);
    bool covered = first < stop && *first == 0 && stop[-1] == count - length;
    for (const Index* start = first; covered && start + 1 < stop; start++) covered = start[0] < start[1] && start[1] <= start[0] + length;
    if (!covered) throw std::invalid_argument("Expected windows in ascending order, each point in one or more.");
    expect(mean_leverages, length, "Expected one leverage of the mean for each point of a window.");
    for (const Numbers* column : {&spectrum, &factors}) expect(*column, length - 1, "Expected one number for each cosine.");
    for_each_series(series, threads, [&](Index s, int each) {
        const double* levels = squares.data() + s * count;
        bool alike = std::all_of(levels, levels + count, [&](double level) { return level == levels[0]; });
        kernels().wiener({values.data() + s * count, levels, pilot.data() + s * count, count, alike, length, starts.data(), stop - first, taper.data(),
                          spectrum.data(), mean_leverages.data(), factors.data(), values_to.data() + s * count,
                          leverages_to.data() + s * count, each});
    });
}

}  // namespace

void bind_smoothing(nb::module_& module) {
    using namespace nb::literals;
    module.def("filter", filter, "values"_a, "taps"_a, "before"_a, "threads"_a, "output"_a);
    module.def("local", local, "times"_a, "values"_a, "weights"_a.none(), "targets"_a, "bandwidth"_a, "reach"_a, "window"_a,
               "side"_a, "degree"_a, "raw"_a, "origin"_a, "width"_a, "boxes"_a, "matrices"_a, "squares"_a, "largest"_a, "threads"_a,
               "results"_a);
    module.def("slide", slide, "values"_a, "table"_a, "reading"_a, "first"_a, "matrices"_a, "cut"_a, "corners"_a, "threads"_a,
               "output"_a);
    module.def("patch", patch, "padded"_a, "key_weights"_a.none(), "profile"_a, "rates"_a, "window"_a, "past"_a, "threads"_a,
               "values"_a, "slopes"_a, "self_weights"_a);
    module.def("patch_rows", patch_rows, "padded"_a, "source"_a, "key_weights"_a.none(), "profile"_a, "rates"_a, "window"_a,
               "past"_a, "rows"_a, "threads"_a, "values"_a, "slopes"_a, "self_weights"_a);
    module.def("bilateral", bilateral, "times"_a, "values"_a, "weights"_a.none(), "rate_time"_a, "rate_value"_a, "reach"_a,
               "threads"_a, "outputs"_a, "self_weights"_a, "variance"_a);
    module.def("bilateral_rows", bilateral_rows, "times"_a, "values"_a, "weights"_a.none(), "rate_time"_a, "rate_value"_a,
               "row_times"_a, "row_values"_a, "start"_a, "stop"_a, "self_index"_a, "threads"_a, "outputs"_a, "self_weights"_a,
               "variance"_a);
    module.def("guided", guided, "times"_a, "guide"_a, "values"_a, "weights"_a.none(), "rate_time"_a, "reach"_a, "table"_a,
               "rates"_a, "squarings"_a, "side"_a, "threads"_a, "outputs"_a, "self_weights"_a, "covariance"_a);
    module.def("risks", risks, "values"_a, "slopes"_a, "observed"_a, "sharpness"_a, "premium"_a, "step"_a, "running"_a, "threads"_a,
               "sums"_a);
    module.def("blend", blend, "values"_a, "slopes"_a, "variances"_a.none(), "sharpness"_a, "weights"_a, "stiffness"_a, "steps"_a,
               "threads"_a, "mixed_values"_a, "mixed_slopes"_a, "mixed_variances"_a.none());
    module.def("blend_past", blend_past, "values"_a, "slopes"_a, "variances"_a.none(), "sharpness"_a, "before"_a, "within"_a, "coldness"_a,
               "step"_a, "threads"_a, "mixed_values"_a, "mixed_slopes"_a, "mixed_variances"_a.none());
    module.def("wiener", wiener, "values"_a, "squares"_a, "pilot"_a, "starts"_a, "taper"_a, "spectrum"_a, "mean_leverages"_a, "factors"_a,
               "threads"_a, "values_to"_a, "leverages_to"_a);
    bind_segments(module);
}

}  // namespace overt
