// How work is distributed among threads: with many entries each thread takes whole entries; with few, all threads share one entry
// after the other.
#pragma once

#include <omp.h>

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

static inline Index count(Index length, Index part) { return (length + part - 1) / part; }

// The length of a part; the last one may be shorter.
static inline int size_of(Index part, int full, Index length) {
    return static_cast<int>(min_of<Index>(full, length - part * full));
}

struct Team {
    int threads;       // all of them
    int entry_groups;  // entries that are computed at once
    int size;          // threads of one entry: entry_groups * size = threads
    Index entries;

    // `together`: one entry after the other, whatever their number.
    explicit Team(const Inputs& inputs, bool together = false) : entries(inputs.batch) {
        // Starting a thread pays from about this many terms.
        constexpr double WORTH = 50000;
        double terms = static_cast<double>(inputs.batch) * inputs.queries * inputs.keys * (inputs.head_dim + inputs.value_dim + 1);
        threads = static_cast<int>(min_of<double>(inputs.threads, 1 + terms / WORTH));
        bool apart = !together && entries >= 4 * threads;
        entry_groups = apart ? threads : 1;
        size = apart ? 1 : threads;
    }

    // work(entry, entry_group)
    template <class Work>
    void each_entry(Work work) const {
        if (entry_groups == 1) {
            for (Index entry = 0; entry < entries; entry++) work(entry, 0);
            return;
        }
#pragma omp parallel for schedule(dynamic) num_threads(entry_groups)
        for (Index entry = 0; entry < entries; entry++) work(entry, omp_get_thread_num());
    }

    // work(item, thread), by the threads of one entry group.
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
