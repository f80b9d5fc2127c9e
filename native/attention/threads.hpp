// How work is distributed among threads: with many entries each thread takes whole entries; with few, all threads share the work of several
// entries at a time.
#pragma once

#include <sched.h>
#include <time.h>

#include "attention/interruption.hpp"
#include "simd/parallel.hpp"
#include "simd/vectors.hpp"
#ifdef OVERT_ITEM_TIMES
#include "check/item_times.hpp"
#endif

namespace overt::OVERT_LEVEL {

static inline Index count(Index length, Index part) { return (length + part - 1) / part; }

// The length of a part; the last one may be shorter.
static inline int size_of(Index part, int full, Index length) {
    return static_cast<int>(min_of<Index>(full, length - part * full));
}

class Team {
    const Inputs& inputs;
    bool watched;  // whether the thread that started the call watches for its end while others work

   public:
    int threads;       // all of them
    int entry_groups;  // entries that are computed at once, each by one thread
    int size;          // threads of one entry: entry_groups * size = threads
    Index entries;

    // `together`: all threads share all work, whatever the number of entries.
    explicit Team(const Inputs& inputs, bool together = false) : inputs(inputs), entries(inputs.batch) {
        // WORTH: terms for each started thread. LONG: terms from which a call takes some hundredths of a second, so it is watched.
        constexpr double WORTH = 50000, LONG = 5e8;
        double terms = static_cast<double>(inputs.batch) * inputs.queries * inputs.keys * (inputs.head_dim + inputs.value_dim + 1);
        threads = static_cast<int>(min_of<double>(inputs.threads, 1 + terms / WORTH));
        watched = inputs.interruption && terms > LONG;
        bool apart = !together && entries >= 4 * threads;
        entry_groups = apart ? threads : 1;
        size = apart ? 1 : threads;
    }

    // work(entry, entry_group)
    template <class Work>
    void each_entry(Work work) const {
        if (entry_groups == 1)
            for (Index entry = 0; entry < entries && !interrupted(inputs); entry++) work(entry, 0);
        else
            share(entries, entry_groups, 1, work);
    }

    // work(item, thread), by the threads of one entry group, each of which takes `chunk` items at a time.
    template <class Work>
    void each(Index items, Work work, Index chunk = 1) const {
        if (size == 1 || items < 2)
            for (Index item = 0; item < items && !interrupted(inputs); item++) work(item, 0);
        else
            share(items, size, chunk, work);
    }

   private:
    // Once the call is to end, the items that are left are skipped.
    template <class Work>
    void share(Index items, int workers, Index chunk, Work work) const {
#ifdef OVERT_ITEM_TIMES
        return ItemTimes::run(items, workers, chunk, work);
#endif
        int finished = 0;
        Index next = 0;
        on_threads(workers, [&](int thread, int all) {
            take_items(next, items, chunk, thread, [&](Index item, int number) {
                if (!interrupted(inputs)) work(item, number);
            });
            __atomic_fetch_add(&finished, 1, __ATOMIC_RELAXED);
            if (watched && thread == 0) wait_for(finished, all);
        });
    }

    // Short waits give the processor to others, long ones sleep.
    void wait_for(const int& finished, int workers) const {
        constexpr int SHORT = 1000;
        const timespec pause{0, 20000};
        for (int i = 0; __atomic_load_n(&finished, __ATOMIC_RELAXED) < workers && !interrupted(inputs); i++)
            if (i < SHORT)
                sched_yield();
            else
                nanosleep(&pause, nullptr);
    }
};

}  // namespace overt::OVERT_LEVEL
