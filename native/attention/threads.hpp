// Who does what: with many entries each thread takes whole entries, with few all threads share one entry after the other.
#pragma once

#include <omp.h>

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

static inline Index count(Index length, Index part) { return (length + part - 1) / part; }

// The length of a part that may be the last one, and shorter.
static inline int size_of(Index part, int full, Index length) { return static_cast<int>(least<Index>(full, length - part * full)); }

struct Team {
    int threads;  // all of them
    int crews;    // how many entries are worked on at once
    int size;     // threads at one entry: crews * size = threads
    Index entries;

    // `together`: one entry after the other, however many there are.
    explicit Team(const Inputs& inputs, bool together = false) : entries(inputs.batch) {
        // A thread is worth its start from about this many terms.
        constexpr double WORTH = 50000;
        double terms = static_cast<double>(inputs.batch) * inputs.queries * inputs.keys * (inputs.features + inputs.width + 1);
        threads = static_cast<int>(least<double>(inputs.threads, 1 + terms / WORTH));
        bool apart = !together && entries >= 4 * threads;
        crews = apart ? threads : 1;
        size = apart ? 1 : threads;
    }

    // work(entry, crew)
    template <class Work>
    void each_entry(Work work) const {
        if (crews == 1) {
            for (Index entry = 0; entry < entries; entry++) work(entry, 0);
            return;
        }
#pragma omp parallel for schedule(dynamic) num_threads(crews)
        for (Index entry = 0; entry < entries; entry++) work(entry, omp_get_thread_num());
    }

    // work(item, member), by the members of one crew.
    template <class Work>
    void each(Index items, Work work) const {
        if (size == 1 || items < 2) {
            for (Index item = 0; item < items; item++) work(item, 0);
            return;
        }
#pragma omp parallel for schedule(dynamic) num_threads(size)
        for (Index item = 0; item < items; item++) work(item, omp_get_thread_num());
    }
};

}  // namespace overt::OVERT_LEVEL
