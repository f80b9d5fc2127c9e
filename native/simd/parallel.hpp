// Work on several threads: OpenMP's, shared with torch, if the core is compiled with it, else the system's. No other file knows which.
#pragma once

#include "kernels.hpp"
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace overt {

#if defined(_OPENMP)
static inline int thread_number() { return omp_get_thread_num(); }
#elif defined(__wasm__)  // a page's core runs one thread
static inline int thread_number() { return 0; }
#else
// The number of this thread among those that work together; 0 outside of them.
int thread_number();
// Runs work(context, thread, threads) on so many threads and waits for all. The caller's is number 0.
void run_threads(int threads, void (*work)(void* context, int thread, int threads), void* context);
#endif

// work(thread, threads) on so many threads at once, or on fewer where the system gives no more.
template <class Work>
static inline void on_threads([[maybe_unused]] int threads, Work work) {
#if defined(_OPENMP)
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num(), omp_get_num_threads());
#elif defined(__wasm__)
    work(0, 1);
#else
    run_threads(threads, [](void* context, int thread, int all) { (*static_cast<Work*>(context))(thread, all); }, &work);
#endif
}

// work(item, thread) for the remaining items: the threads that share `next` take this many at a time, as they finish.
template <class Work>
static inline void take_items(Index& next, Index items, Index chunk, int thread, Work work) {
    for (Index first; (first = __atomic_fetch_add(&next, chunk, __ATOMIC_RELAXED)) < items;)
        for (Index item = first; item < first + chunk && item < items; item++) work(item, thread);
}

// work(item, thread) for all items.
template <class Work>
static inline void share_items(Index items, Index chunk, int threads, Work work) {
    Index next = 0;
    on_threads(threads, [&](int thread, int) { take_items(next, items, chunk, thread, work); });
}

// The same with an equal part of the items, which follow each other, for each thread.
template <class Work>
static inline void divide_items(Index items, int threads, Work work) {
    share_items(items, items / threads + (items % threads > 0), threads, work);
}

}  // namespace overt
