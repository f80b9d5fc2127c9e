// The smoothing kernels in the module. Arrays are float64 and contiguous, which is checked here; Python has checked their contents.
#include "bind/smoothing.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "levels.hpp"
#include "smoothing/smoothing.hpp"

namespace overt {
namespace {

namespace nb = nanobind;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrices = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const Index, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Outputs = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutputMatrices = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

const Smoothing& kernels() { return *current_level().smoothing; }

int at_least_one(int threads) { return threads > 0 ? threads : 1; }

template <class Array>
void expect(const Array& array, Index length, const char* message) {
    if (static_cast<Index>(array.shape(0)) != length) throw std::invalid_argument(message);
}

void filter(Numbers values, Numbers taps, Index before, int threads, Outputs output) {
    Index count = values.shape(0), after = static_cast<Index>(taps.shape(0)) - 1 - before;
    if (before < 0 || after < 0) throw std::invalid_argument("Expected before to be the index of one of the taps.");
    expect(output, count, "Expected one output for each value.");
    Filter task{values.data(), count, taps.data(), before, after, output.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().filter(task);
}

Patch patch_of(const Numbers& padded, const std::optional<Numbers>& key_weights, const Numbers& profile, const Numbers& rates,
               Index window, bool past, int threads) {
    Index half = static_cast<Index>(profile.shape(0)) / 2, count = static_cast<Index>(padded.shape(0)) - 2 * half;
    if (profile.shape(0) % 2 == 0 || count < 1 || window < 0)
        throw std::invalid_argument("Expected a profile of odd length, a series of one point or more and a window of 0 or more.");
    if (key_weights) expect(*key_weights, count, "Expected one weight for each value.");
    return {padded.data(), key_weights ? key_weights->data() : nullptr, count, half, profile.data(), rates.data(),
            static_cast<Index>(rates.shape(0)), window, past, nullptr, nullptr, nullptr, at_least_one(threads)};
}

void set_results(Patch& task, const OutputMatrices& values, const OutputMatrices& slopes, const OutputMatrices& self_weights,
                 Index rows) {
    for (const OutputMatrices* table : {&values, &slopes, &self_weights})
        if (static_cast<Index>(table->shape(0)) != task.bandwidths || static_cast<Index>(table->shape(1)) != rows)
            throw std::invalid_argument("Expected results of shape (bandwidths, rows).");
    task.values = values.data(), task.slopes = slopes.data(), task.self_weights = self_weights.data();
}

void patch(Numbers padded, std::optional<Numbers> key_weights, Numbers profile, Numbers rates, Index window, bool past, int threads,
           OutputMatrices values, OutputMatrices slopes, OutputMatrices self_weights) {
    Patch task = patch_of(padded, key_weights, profile, rates, window, past, threads);
    set_results(task, values, slopes, self_weights, task.count);
    nb::gil_scoped_release released;
    kernels().patch(task);
}

void patch_rows(Numbers padded, Indices source, std::optional<Numbers> key_weights, Numbers profile, Numbers rates, Index window,
                bool past, Indices rows, int threads, OutputMatrices values, OutputMatrices slopes, OutputMatrices self_weights) {
    Patch task = patch_of(padded, key_weights, profile, rates, window, past, threads);
    expect(source, static_cast<Index>(padded.shape(0)), "Expected one source for each padded value.");
    Index count = rows.shape(0);
    for (Index r = 0; r < count; r++)
        if (rows.data()[r] < 0 || rows.data()[r] >= task.count)
            throw std::invalid_argument("Expected rows to be indices of points of the series.");
    set_results(task, values, slopes, self_weights, count);
    nb::gil_scoped_release released;
    kernels().patch_rows({task, source.data(), rows.data(), count});
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

void guided(Numbers times, Numbers guide, Numbers values, std::optional<Numbers> weights, double rate_time, double reach,
            Numbers table, Numbers rates, Indices squarings, int side, int threads, OutputMatrices outputs,
            OutputMatrices self_weights, OutputMatrices covariance) {
    Index count = times.shape(0), bandwidths = rates.shape(0);
    for (const Numbers* column : {&guide, &values}) expect(*column, count, "Expected one number for each time.");
    if (weights) expect(*weights, count, "Expected one weight for each time.");
    expect(squarings, bandwidths, "Expected one number of squarings for each bandwidth.");
    for (const OutputMatrices* column : {&outputs, &self_weights, &covariance})
        if (static_cast<Index>(column->shape(0)) != bandwidths || static_cast<Index>(column->shape(1)) != count)
            throw std::invalid_argument("Expected results of shape (bandwidths, values).");
    if (side < 0 || side > 2) throw std::invalid_argument("Expected a side of 0, 1 or 2.");
    if (bandwidths > 0 && squarings.data()[0]) throw std::invalid_argument("Expected no squarings for the first bandwidth.");
    Index lags = table.shape(0) ? static_cast<Index>(table.shape(0)) - 1 : 0;
    Guided task{times.data(),
                guide.data(),
                values.data(),
                weights ? weights->data() : nullptr,
                count,
                rate_time,
                reach,
                table.data(),
                lags,
                rates.data(),
                squarings.data(),
                bandwidths,
                static_cast<Side>(side),
                outputs.data(),
                self_weights.data(),
                covariance.data(),
                at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().guided(task);
}

Bank bank(const Matrices& values, const Matrices& slopes, const std::optional<Matrices>& variances) {
    for (const Matrices* column : {&slopes, variances ? &*variances : &values})
        if (column->shape(0) != values.shape(0) || column->shape(1) != values.shape(1))
            throw std::invalid_argument("Expected slopes and variances of shape (heads, points), like values.");
    return {values.data(), slopes.data(), variances ? variances->data() : nullptr, static_cast<Index>(values.shape(0)),
            static_cast<Index>(values.shape(1))};
}

void risks(Matrices values, Matrices slopes, Numbers observed, Numbers sharpness, double premium, Index step, bool running,
           int threads, OutputMatrices sums) {
    Bank heads = bank(values, slopes, std::nullopt);
    for (const Numbers* column : {&observed, &sharpness}) expect(*column, heads.count, "Expected one number for each point.");
    if (step < 1) throw std::invalid_argument("Expected blocks of one point or more.");
    Index columns = running ? heads.count : (heads.count + step - 1) / step;
    if (static_cast<Index>(sums.shape(0)) != heads.heads || static_cast<Index>(sums.shape(1)) != columns)
        throw std::invalid_argument("Expected sums of shape (heads, blocks), or (heads, points) where they are running.");
    Risks task{heads, observed.data(), sharpness.data(), premium, step, running, sums.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().risks(task);
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

void blend(Matrices values, Matrices slopes, std::optional<Matrices> variances, Numbers sharpness, const std::vector<Matrices>& weights,
           const std::vector<Numbers>& stiffness, const std::vector<Index>& steps, int threads, OutputMatrices mixed_values,
           OutputMatrices mixed_slopes, std::optional<OutputMatrices> mixed_variances) {
    Bank heads = bank(values, slopes, variances);
    expect(sharpness, heads.count, "Expected one number for each point.");
    if (stiffness.size() != weights.size() || steps.size() != weights.size())
        throw std::invalid_argument("Expected shares of three parts.");
    std::vector<Shares> shares;
    for (std::size_t s = 0; s < weights.size(); s++) {
        Index blocks = blocks_of(weights[s], heads, steps[s]);
        expect(stiffness[s], blocks, "Expected one stiffness for each block.");
        shares.push_back({weights[s].data(), stiffness[s].data(), blocks, steps[s]});
    }
    Blend task{heads,
               sharpness.data(),
               shares.data(),
               nullptr,
               mixtures(heads, shares.size(), mixed_values, mixed_slopes, mixed_variances),
               at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().blend(task);
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
}

}  // namespace overt
