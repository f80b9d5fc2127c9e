// Working memory without a C library: one stack, which grows upwards and is released in the reverse order.
#include "simd/scratch.hpp"
#include "wasm/exported.hpp"

extern unsigned char __heap_base;  // the linker's: the first byte behind all variables

namespace overt {
namespace {

constexpr std::size_t PAGE = 65536, ALIGNMENT = 64;
std::size_t top = 0;

}  // namespace

void* allocate(std::size_t bytes) {
    if (top == 0) top = reinterpret_cast<std::size_t>(&__heap_base);
    std::size_t start = (top + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    std::size_t stop = start + bytes + ALIGNMENT;  // rows are read in whole vectors, which may reach beyond the last number
    std::size_t present = __builtin_wasm_memory_size(0) * PAGE;
    bool fits = stop >= start && (stop <= present || __builtin_wasm_memory_grow(0, (stop - present + PAGE - 1) / PAGE) != -1ul);
    if (!fits) __builtin_trap();  // which the page gets as an error
    top = start + bytes;
    return reinterpret_cast<void*>(start);
}

void release(void* memory) { top = reinterpret_cast<std::size_t>(memory); }

void expect_writing(void*, std::size_t) {}

EXPORTED(allocate) void* allocate_for_page(std::size_t bytes) { return allocate(bytes); }

// Releases this memory and all that was allocated after it.
EXPORTED(release) void release_for_page(void* memory) { release(memory); }

}  // namespace overt
