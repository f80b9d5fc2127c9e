#include "simd/scratch.hpp"

#include <cstdint>
#include <cstdlib>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace overt {

void* allocate(std::size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    expect_writing(memory, bytes);
    return memory;
}

void release(void* memory) { std::free(memory); }

void expect_writing([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr std::size_t MUCH = std::size_t{4} << 20;
    constexpr std::uintptr_t PAGE = 4096;
    if (bytes < MUCH) return;
    std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(memory) + PAGE - 1) & ~(PAGE - 1);
    std::uintptr_t stop = (reinterpret_cast<std::uintptr_t>(memory) + bytes) & ~(PAGE - 1);
    madvise(reinterpret_cast<void*>(first), stop - first, MADV_HUGEPAGE);  // only advice: results do not depend on it
#endif
}

}  // namespace overt
