// The page's core runs one thread; a worker of the page has one of its own.
#pragma once
static inline int omp_get_thread_num() { return 0; }
static inline int omp_get_num_threads() { return 1; }
