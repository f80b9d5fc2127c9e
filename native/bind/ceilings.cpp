// What the arithmetic units of this machine can do at the level in use, for the bounds that `overt bench` states.
#include "bind/ceilings.hpp"

#include <omp.h>

#include <stdexcept>

#include "levels.hpp"

namespace overt {

// Operations on one number a second, all threads together.
static double rate(Index (*loop)(Index rounds), int threads, double seconds) {
    if (threads < 1 || !(seconds > 0)) throw std::invalid_argument("threads are at least 1 and seconds more than 0");
    double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
    {
        double start = omp_get_wtime(), passed = 0, done = 0;
        while (passed < seconds) {
            done += static_cast<double>(loop(4096));
            passed = omp_get_wtime() - start;
        }
        total += done / passed;
    }
    return total;
}

void bind_ceilings(nanobind::module_& module) {
    namespace nb = nanobind;
    module.def(
        "multiply_add_rate",
        [](int threads, double seconds) { return rate(current_level().ceilings.multiply_adds, threads, seconds); },
        nb::arg("threads"), nb::arg("seconds"), nb::call_guard<nb::gil_scoped_release>(),
        "Multiply-adds of float32 numbers a second, in registers, on so many threads.");
    module.def(
        "divide_rate",
        [](int threads, double seconds) { return rate(current_level().ceilings.divisions, threads, seconds); },
        nb::arg("threads"), nb::arg("seconds"), nb::call_guard<nb::gil_scoped_release>(),
        "Divisions of float32 numbers a second, in registers, on so many threads.");
}

}  // namespace overt
