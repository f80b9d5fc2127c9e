// The smoothers' kernels in the module: arrays are float64 and contiguous, which is checked; what they hold, Python has checked.
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
using Given = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Places = nb::ndarray<const Index, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Results = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Tables = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

const Smoothing& kernels() { return *current_level().smoothing; }

int at_least_one(int threads) { return threads > 0 ? threads : 1; }

template <class Array>
void expect(const Array& array, Index length, const char* rule) {
    if (static_cast<Index>(array.shape(0)) != length) throw std::invalid_argument(rule);
}

void filter(Numbers values, Numbers taps, Index before, int threads, Results output) {
    Index count = values.shape(0), after = static_cast<Index>(taps.shape(0)) - 1 - before;
    if (before < 0 || after < 0) throw std::invalid_argument("before is the place of one of the taps");
    expect(output, count, "there is one output for each value");
    Filter task{values.data(), count, taps.data(), before, after, output.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().filter(task);
}

Patch patch_of(const Numbers& padded, const std::optional<Numbers>& charges, const Numbers& profile, const Numbers& rates, Index window,
               bool past, int threads) {
    Index half = static_cast<Index>(profile.shape(0)) / 2, count = static_cast<Index>(padded.shape(0)) - 2 * half;
    if (profile.shape(0) % 2 == 0 || count < 1 || window < 0) throw std::invalid_argument("a patch has a middle, and a series a point");
    if (charges) expect(*charges, count, "there is one weight for each value");
    return {padded.data(), charges ? charges->data() : nullptr, count, half, profile.data(), rates.data(),
            static_cast<Index>(rates.shape(0)), window, past, nullptr, nullptr, nullptr, at_least_one(threads)};
}

void into(Patch& task, const Tables& values, const Tables& slopes, const Tables& own, Index rows) {
    for (const Tables* table : {&values, &slopes, &own})
        if (static_cast<Index>(table->shape(0)) != task.bandwidths || static_cast<Index>(table->shape(1)) != rows)
            throw std::invalid_argument("results are (bandwidths, rows)");
    task.values = values.data(), task.slopes = slopes.data(), task.own = own.data();
}

void patch(Numbers padded, std::optional<Numbers> charges, Numbers profile, Numbers rates, Index window, bool past, int threads,
           Tables values, Tables slopes, Tables own) {
    Patch task = patch_of(padded, charges, profile, rates, window, past, threads);
    into(task, values, slopes, own, task.count);
    nb::gil_scoped_release released;
    kernels().patch(task);
}

void patch_rows(Numbers padded, Places source, std::optional<Numbers> charges, Numbers profile, Numbers rates, Index window, bool past,
                Places rows, int threads, Tables values, Tables slopes, Tables own) {
    Patch task = patch_of(padded, charges, profile, rates, window, past, threads);
    expect(source, static_cast<Index>(padded.shape(0)), "there is one source for each padded value");
    Index count = rows.shape(0);
    for (Index r = 0; r < count; r++)
        if (rows.data()[r] < 0 || rows.data()[r] >= task.count) throw std::invalid_argument("rows are points of the series");
    into(task, values, slopes, own, count);
    nb::gil_scoped_release released;
    kernels().patch_rows({task, source.data(), rows.data(), count});
}

void slide(Numbers values, Given table, Given reading, Index first, Given matrices, const std::vector<Index>& cut, Numbers corners,
           int threads, Results output) {
    Index size = table.shape(0), terms = table.shape(1), rows = matrices.shape(0);
    if (size < 8 || size % 8 || terms < 8 || terms % 8 || terms > 32) throw std::invalid_argument("size and terms are multiples of 8");
    if (static_cast<Index>(reading.shape(0)) != terms || static_cast<Index>(reading.shape(1)) != size)
        throw std::invalid_argument("reading is (terms, size)");
    if (static_cast<Index>(matrices.shape(1)) != terms || rows % terms) throw std::invalid_argument("matrices are (whole * terms, terms)");
    expect(corners, static_cast<Index>(cut.size()) * size * size, "there is one corner for each cut");
    expect(output, values.shape(0), "there is one output for each value");
    Slide task{values.data(), static_cast<Index>(values.shape(0)), size, static_cast<int>(terms), table.data(), reading.data(),
               first, rows / terms, matrices.data(), cut.data(), static_cast<int>(cut.size()), corners.data(),
               output.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().slide(task);
}

Charged charged(const Numbers& times, const Numbers& values, const std::optional<Numbers>& weights, double rate_time, double rate_value) {
    Index count = times.shape(0);
    expect(values, count, "there is one value for each time");
    if (weights) expect(*weights, count, "there is one weight for each time");
    return {times.data(), values.data(), weights ? weights->data() : nullptr, count, rate_time, rate_value};
}

PairResults results(const Results& values, const Results& own, const Results& variance, Index count) {
    for (const Results* column : {&values, &own, &variance}) expect(*column, count, "there is one result for each row");
    return {values.data(), own.data(), variance.data()};
}

void bilateral(Numbers times, Numbers values, std::optional<Numbers> weights, double rate_time, double rate_value, double reach, int threads,
               Results outputs, Results own, Results variance) {
    Charged points = charged(times, values, weights, rate_time, rate_value);
    Mutual task{points, reach, results(outputs, own, variance, points.count), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().bilateral(task);
}

void bilateral_rows(Numbers times, Numbers values, std::optional<Numbers> weights, double rate_time, double rate_value, Numbers row_times,
                    Numbers row_values, Places start, Places stop, Places place, int threads, Results outputs, Results own,
                    Results variance) {
    Index count = row_times.shape(0);
    expect(row_values, count, "there is one value for each row");
    for (const Places* column : {&start, &stop, &place}) expect(*column, count, "there is one place for each row");
    Charged keys = charged(times, values, weights, rate_time, rate_value);
    for (Index i = 0; i < count; i++)
        if (start.data()[i] < 0 || stop.data()[i] > keys.count || place.data()[i] >= keys.count)
            throw std::invalid_argument("rows attend to keys that are there");
    Rows task{keys, row_times.data(), row_values.data(), start.data(), stop.data(), place.data(), count,
              results(outputs, own, variance, count), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().bilateral_rows(task);
}

void local(Numbers times, Numbers values, std::optional<Numbers> weights, Numbers targets, double bandwidth, double reach, double window,
           int side, int degree, bool raw, double origin, double width, Index boxes, Numbers matrices, Numbers squares, Numbers largest, int threads,
           Results found) {
    Index count = times.shape(0), rows = targets.shape(0), powers = 2 * degree + 1, terms = 24;
    expect(values, count, "there is one value for each time");
    if (weights) expect(*weights, count, "there is one weight for each time");
    if (side < 0 || side > 2 || degree < 0 || degree > 2) throw std::invalid_argument("side and degree are 0, 1 or 2");
    expect(found, (raw ? powers : 3) * rows, "there are three numbers for each target, raw one for each power");
    Index spans = largest.shape(0), squares_spans = static_cast<Index>(squares.shape(0)) / (terms * terms * powers);
    if (spans % 2 == 0 || squares_spans % 2 == 0 || squares_spans > spans) throw std::invalid_argument("boxes reach as far to both sides");
    expect(matrices, spans * terms * terms * powers, "matrices are (spans, 24, powers, 24)");
    Local task{times.data(), values.data(), weights ? weights->data() : nullptr, count, targets.data(), rows, 1 / bandwidth, reach,
               window, static_cast<Side>(side), degree, raw,
               {boxes, origin, width, spans / 2, squares_spans / 2, matrices.data(), squares.data(), largest.data()},
               found.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().local(task);
}

void guided(Numbers times, Numbers guide, Numbers values, std::optional<Numbers> weights, double rate_time, double reach, Numbers table,
            Numbers rates, Places squarings, int side, int threads, Tables outputs, Tables own, Tables covariance) {
    Index count = times.shape(0), bandwidths = rates.shape(0);
    for (const Numbers* column : {&guide, &values}) expect(*column, count, "there is one number for each time");
    if (weights) expect(*weights, count, "there is one weight for each time");
    expect(squarings, bandwidths, "there is one number of squarings for each bandwidth");
    for (const Tables* column : {&outputs, &own, &covariance})
        if (static_cast<Index>(column->shape(0)) != bandwidths || static_cast<Index>(column->shape(1)) != count)
            throw std::invalid_argument("results are (bandwidths, values)");
    if (side < 0 || side > 2) throw std::invalid_argument("a side is 0, 1 or 2");
    if (bandwidths > 0 && squarings.data()[0]) throw std::invalid_argument("the first bandwidth has none before it to square");
    Index lags = table.shape(0) ? static_cast<Index>(table.shape(0)) - 1 : 0;
    Guided task{times.data(), guide.data(), values.data(), weights ? weights->data() : nullptr, count, rate_time, reach, table.data(), lags,
                rates.data(), squarings.data(), bandwidths, static_cast<Side>(side), outputs.data(), own.data(), covariance.data(),
                at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().guided(task);
}

Bank bank(const Given& values, const Given& slopes, const Given& variances) {
    for (const Given* column : {&slopes, &variances})
        if (column->shape(0) != values.shape(0) || column->shape(1) != values.shape(1))
            throw std::invalid_argument("what heads give is (heads, points)");
    return {values.data(), slopes.data(), variances.data(), static_cast<Index>(values.shape(0)), static_cast<Index>(values.shape(1))};
}

void risks(Given values, Given slopes, Numbers observed, Numbers sharpness, Index step, bool running, int threads, Tables sums) {
    Bank heads = bank(values, slopes, values);
    for (const Numbers* column : {&observed, &sharpness}) expect(*column, heads.count, "there is one number for each point");
    if (step < 1) throw std::invalid_argument("blocks have points");
    Index columns = running ? heads.count : (heads.count + step - 1) / step;
    if (static_cast<Index>(sums.shape(0)) != heads.heads || static_cast<Index>(sums.shape(1)) != columns)
        throw std::invalid_argument("sums are (heads, blocks), or (heads, points) where they run");
    Risks task{heads, observed.data(), sharpness.data(), step, running, sums.data(), at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().risks(task);
}

Mixtures mixtures(const Bank& heads, std::size_t count, const Tables& values, const Tables& slopes, const Tables& variances) {
    for (const Tables* column : {&values, &slopes, &variances})
        if (column->shape(0) != count || static_cast<Index>(column->shape(1)) != heads.count)
            throw std::invalid_argument("mixtures are (mixtures, points)");
    return {values.data(), slopes.data(), variances.data(), static_cast<int>(count)};
}

Index blocks_of(const Given& table, const Bank& heads, Index step) {
    if (static_cast<Index>(table.shape(0)) != heads.heads || table.shape(1) < 1 || step < 1)
        throw std::invalid_argument("shares are (heads, blocks)");
    return table.shape(1);
}

void blend(Given values, Given slopes, Given variances, Numbers sharpness, const std::vector<Given>& weights,
           const std::vector<Numbers>& stiffness, const std::vector<Index>& steps, int threads, Tables mixed_values, Tables mixed_slopes,
           Tables mixed_variances) {
    Bank heads = bank(values, slopes, variances);
    expect(sharpness, heads.count, "there is one number for each point");
    if (stiffness.size() != weights.size() || steps.size() != weights.size()) throw std::invalid_argument("shares have three parts");
    std::vector<Shares> shares;
    for (std::size_t s = 0; s < weights.size(); s++) {
        Index blocks = blocks_of(weights[s], heads, steps[s]);
        expect(stiffness[s], blocks, "there is one stiffness for each block");
        shares.push_back({weights[s].data(), stiffness[s].data(), blocks, steps[s]});
    }
    Blend task{heads, sharpness.data(), shares.data(), nullptr, mixtures(heads, shares.size(), mixed_values, mixed_slopes, mixed_variances),
               at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().blend(task);
}

void blend_past(Given values, Given slopes, Given variances, Numbers sharpness, const std::vector<Given>& before, Given within,
                const std::vector<Numbers>& coldness, Index step, int threads, Tables mixed_values, Tables mixed_slopes,
                Tables mixed_variances) {
    Bank heads = bank(values, slopes, variances);
    expect(sharpness, heads.count, "there is one number for each point");
    bank(values, within, within);
    if (coldness.size() != before.size()) throw std::invalid_argument("shares have two parts");
    std::vector<PastShares> shares;
    for (std::size_t s = 0; s < before.size(); s++) {
        Index blocks = blocks_of(before[s], heads, step);
        expect(coldness[s], heads.count, "there is one coldness for each point");
        if (blocks * step < heads.count) throw std::invalid_argument("every point has a block");
        shares.push_back({before[s].data(), within.data(), coldness[s].data(), blocks, step});
    }
    Blend task{heads, sharpness.data(), nullptr, shares.data(), mixtures(heads, shares.size(), mixed_values, mixed_slopes, mixed_variances),
               at_least_one(threads)};
    nb::gil_scoped_release released;
    kernels().blend(task);
}

}  // namespace

void bind_smoothing(nb::module_& module) {
    using namespace nb::literals;
    module.def("filter", filter, "values"_a, "taps"_a, "before"_a, "threads"_a, "output"_a);
    module.def("local", local, "times"_a, "values"_a, "weights"_a.none(), "targets"_a, "bandwidth"_a, "reach"_a, "window"_a, "side"_a,
               "degree"_a, "raw"_a, "origin"_a, "width"_a, "boxes"_a, "matrices"_a, "squares"_a, "largest"_a, "threads"_a, "found"_a);
    module.def("slide", slide, "values"_a, "table"_a, "reading"_a, "first"_a, "matrices"_a, "cut"_a, "corners"_a, "threads"_a, "output"_a);
    module.def("patch", patch, "padded"_a, "charges"_a.none(), "profile"_a, "rates"_a, "window"_a, "past"_a, "threads"_a, "values"_a, "slopes"_a,
               "own"_a);
    module.def("patch_rows", patch_rows, "padded"_a, "source"_a, "charges"_a.none(), "profile"_a, "rates"_a, "window"_a, "past"_a, "rows"_a,
               "threads"_a, "values"_a, "slopes"_a, "own"_a);
    module.def("bilateral", bilateral, "times"_a, "values"_a, "weights"_a.none(), "rate_time"_a, "rate_value"_a, "reach"_a, "threads"_a,
               "outputs"_a, "own"_a, "variance"_a);
    module.def("bilateral_rows", bilateral_rows, "times"_a, "values"_a, "weights"_a.none(), "rate_time"_a, "rate_value"_a, "row_times"_a,
               "row_values"_a, "start"_a, "stop"_a, "place"_a, "threads"_a, "outputs"_a, "own"_a, "variance"_a);
    module.def("guided", guided, "times"_a, "guide"_a, "values"_a, "weights"_a.none(), "rate_time"_a, "reach"_a, "table"_a, "rates"_a,
               "squarings"_a, "side"_a, "threads"_a, "outputs"_a, "own"_a, "covariance"_a);
    module.def("risks", risks, "values"_a, "slopes"_a, "observed"_a, "sharpness"_a, "step"_a, "running"_a, "threads"_a, "sums"_a);
    module.def("blend", blend, "values"_a, "slopes"_a, "variances"_a, "sharpness"_a, "weights"_a, "stiffness"_a, "steps"_a, "threads"_a,
               "mixed_values"_a, "mixed_slopes"_a, "mixed_variances"_a);
    module.def("blend_past", blend_past, "values"_a, "slopes"_a, "variances"_a, "sharpness"_a, "before"_a, "within"_a, "coldness"_a,
               "step"_a, "threads"_a, "mixed_values"_a, "mixed_slopes"_a, "mixed_variances"_a);
}

}  // namespace overt
