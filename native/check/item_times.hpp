// How busy threads would be that the machine has not: every item of work runs on one thread and is timed, and then given, in order, to
// whichever of the threads is free first, as OpenMP's dynamic schedule does. benchmarks/kernels/scheduling.py compiles the kernels with it.
#pragma once

#include <time.h>

#include <vector>

namespace overt {

struct ItemTimes {
    static inline double in_items = 0, with_threads = 0;  // seconds of work, and the same work's time when threads share it
    static inline double in_clock = 0;                    // seconds of reading the clock

    // Of the processor: other programs may use it meanwhile.
    static double now() {
        timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }

    // What one reading takes.
    static double reading() {
        static const double shortest = [] {
            double least = 1;
            for (int i = 0; i < 10000; i++) {
                double start = now(), taken = now() - start;
                least = taken < least ? taken : least;
            }
            return least;
        }();
        return shortest;
    }

    template <class Work>
    static void run(std::int64_t items, int threads, std::int64_t chunk, Work work) {
        std::vector<double> free_at(static_cast<std::size_t>(threads), 0.0);
        for (std::int64_t item = 0; item < items;) {
            auto first = free_at.begin();
            for (auto at = free_at.begin(); at != free_at.end(); ++at) first = *at < *first ? at : first;
            double start = now();
            for (std::int64_t n = 0; n < chunk && item < items; n++) work(item++, static_cast<int>(first - free_at.begin()));
            double seconds = now() - start - reading();
            *first += seconds, in_items += seconds, in_clock += 2 * reading();
        }
        double longest = 0;
        for (double end : free_at) longest = end > longest ? end : longest;
        with_threads += longest;
    }
};

}  // namespace overt
