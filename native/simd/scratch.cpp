#include "simd/scratch.hpp"

#include <cstdint>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace overt {

constexpr std::align_val_t ALIGNMENT{64};

void* allocate(std::size_t bytes) {
    void* memory = ::operator new((bytes + 63) / 64 * 64, ALIGNMENT);
    expect_writing(memory, bytes);
    return memory;
}

void release(void* memory) { ::operator delete(memory, ALIGNMENT); }

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
