// The kernel of segments in the module.
#include "bind/series.hpp"
#include "bind/smoothing.hpp"

namespace overt {
namespace {

void expect_division(double change, double prior) {
    if (!(change > 0 && change < 1 && prior > 0)) throw std::invalid_argument("Expected a chance of a change between 0 and 1, and a prior variance.");
}

void segments(Matrices times, Matrices values, Matrices weights, double change, Numbers priors, Numbers centers, int threads,
              OutputMatrices values_to, OutputMatrices variances_to) {
    Index series = values.shape(0), count = values.shape(1);
    for (const Matrices* column : {&times, &weights}) expect_matrix(*column, series, count);
    for (const OutputMatrices* column : {&values_to, &variances_to})
        if (static_cast<Index>(column->shape(0)) != series || static_cast<Index>(column->shape(1)) != count)
            throw std::invalid_argument("Expected one result for each point, series by series.");
    for (const Numbers* column : {&priors, &centers}) expect(*column, series, "Expected one number for each series.");
    for (Index s = 0; s < series; s++) expect_division(change, priors.data()[s]);
    for_each_series(series, threads, [&](Index s, int each) {
        kernels().segments({times.data() + s * count, values.data() + s * count, weights.data() + s * count, count, change, priors.data()[s],
                            centers.data()[s], values_to.data() + s * count, variances_to.data() + s * count, each, -1, nullptr});
    });
}

void segments_row(Numbers times, Numbers values, Numbers weights, double change, double prior, double center, Index row, Outputs row_to) {
    Index count = values.shape(0);
    for (const Numbers* column : {&times, &weights}) expect(*column, count, "Expected one number for each point.");
    if (static_cast<Index>(row_to.shape(0)) != count || row < 0 || row >= count)
        throw std::invalid_argument("Expected a row of the series, and one weight for each point.");
    expect_division(change, prior);
    nb::gil_scoped_release released;
    std::fill(row_to.data(), row_to.data() + count, 0.0);
    kernels().segments({times.data(), values.data(), weights.data(), count, change, prior, center, nullptr, nullptr, 1, row, row_to.data()});
}

}  // namespace

void bind_segments(nb::module_& module) {
    using namespace nb::literals;
    module.def("segments", segments, "times"_a, "values"_a, "weights"_a, "change"_a, "priors"_a, "centers"_a, "threads"_a, "values_to"_a,
               "variances_to"_a);
    module.def("segments_row", segments_row, "times"_a, "values"_a, "weights"_a, "change"_a, "prior"_a, "center"_a, "row"_a, "row_to"_a);
}

}  // namespace overt
