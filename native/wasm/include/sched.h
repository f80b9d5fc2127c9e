// There is one thread, which has nobody to give way to.
#pragma once
static inline int sched_yield() { return 0; }
