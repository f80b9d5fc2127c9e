// The peak rates of this machine's arithmetic units at the current level, for the bounds that `overt bench` states.
#include "bind/ceilings.hpp"

#include <chrono>
#include <stdexcept>
#include <vector>

#include "levels.hpp"
#include "simd/parallel.hpp"

namespace overt {

// Operations on single numbers per second, all threads together.
static double rate(Index (*loop)(Index rounds), int threads, double seconds) {
    if (threads < 1 || !(seconds > 0)) throw std::invalid_argument("Expected at least 1 thread and more than 0 seconds.");
    using Clock = std::chrono::steady_clock;
    std::vector<double> rates(threads);
    on_threads(threads, [&](int thread, int) {
        auto start = Clock::now();
        double elapsed = 0, done = 0;
        while (elapsed < seconds) {
            done += static_cast<double>(loop(4096));
            elapsed = std::chrono::duration<double>(Clock::now() - start).count();
        }
        rates[thread] = done / elapsed;
    });
    double total = 0;
    for (double each : rates) total += each;
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
