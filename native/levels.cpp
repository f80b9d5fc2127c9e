#include "levels.hpp"

#include <atomic>
#include <cstring>

namespace overt {

namespace baseline {
extern const Level LEVEL;
}
// __builtin_cpu_supports also checks that the operating system saves the wide registers.
#ifdef OVERT_HAS_avx2
namespace avx2 {
extern const Level LEVEL;
}

static bool runs_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif

#ifdef OVERT_HAS_avx512
namespace avx512 {
extern const Level LEVEL;
}

static bool runs_avx512() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
           __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq");
}
#endif

struct AvailableLevels {
    const Level* levels[3];
    int count = 0;

    AvailableLevels() {
#ifdef __x86_64__
        __builtin_cpu_init();
#endif
#ifdef OVERT_HAS_avx512
        if (runs_avx512()) levels[count++] = &avx512::LEVEL;
#endif
#ifdef OVERT_HAS_avx2
        if (runs_avx2()) levels[count++] = &avx2::LEVEL;
#endif
        levels[count++] = &baseline::LEVEL;
    }
};

static const AvailableLevels& levels_here() {
    static const AvailableLevels available;
    return available;
}

static std::atomic<const Level*>& current() {
    static std::atomic<const Level*> level{levels_here().levels[0]};
    return level;
}

const Level* const* available_levels(int* count) {
    *count = levels_here().count;
    return levels_here().levels;
}

const Level& current_level() { return *current().load(std::memory_order_relaxed); }

bool use_level(const char* name) {
    for (int i = 0; i < levels_here().count; i++) {
        if (std::strcmp(levels_here().levels[i]->name, name) == 0) {
            current().store(levels_here().levels[i], std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

}  // namespace overt
