// Whether a call must end early.
#pragma once

#include <time.h>

#include "kernels.hpp"
#include "simd/parallel.hpp"

namespace overt::OVERT_LEVEL {

// Checked before every tile. The thread that started the call is number 0 of each team.
static inline bool interrupted(const Inputs& inputs) {
    constexpr std::int64_t PERIOD = 50000000;
    Interruption* interruption = inputs.interruption;
    if (!interruption) return false;
    if (thread_number() == 0 && !interruption->stopped) {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        std::int64_t nanoseconds = now.tv_sec * std::int64_t{1000000000} + now.tv_nsec;
        if (interruption->next == 0) interruption->next = nanoseconds + PERIOD;
        if (nanoseconds >= interruption->next) {
            if (interruption->asked()) __atomic_store_n(&interruption->stopped, 1, __ATOMIC_RELAXED);
            interruption->next = nanoseconds + PERIOD;
        }
    }
    return __atomic_load_n(&interruption->stopped, __ATOMIC_RELAXED);
}

}  // namespace overt::OVERT_LEVEL
