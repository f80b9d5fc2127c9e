// There is no clock: nobody ends a call before its time.
#pragma once
struct timespec {
    long long tv_sec;
    long tv_nsec;
};
constexpr int CLOCK_MONOTONIC = 0;
static inline int clock_gettime(int, timespec* now) {
    *now = {0, 0};
    return 0;
}
static inline int nanosleep(const timespec*, timespec*) { return 0; }
