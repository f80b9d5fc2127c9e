// Threads of the system, for compilers without OpenMP. They are made for each call: some tens of microseconds, where a call is worth it.
#include "simd/parallel.hpp"

#if !defined(_OPENMP) && !defined(__wasm__)
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace overt {

static thread_local int number = 0;

int thread_number() { return number; }

void run_threads(int threads, void (*work)(void* context, int thread, int threads), void* context) {
    // A thread is counted before any begins to work, so that the number that each gets is right.
    std::vector<std::thread> others;
    int all = 1;
    std::atomic<int> begin{0};
    auto start = [&](int thread) {
        number = thread;
        while (!begin.load(std::memory_order_acquire)) std::this_thread::yield();
        work(context, thread, begin.load(std::memory_order_relaxed));
    };
    try {
        for (; all < threads; all++) others.emplace_back(start, all);
    } catch (const std::system_error&) {  // the system gives no more threads: those that there are do all
    }
    begin.store(all, std::memory_order_release);
    work(context, 0, all);
    for (auto& thread : others) thread.join();
}

}  // namespace overt
#endif
