#include "scratch.hpp"

#include <cstdlib>
#include <new>

namespace overt {

void* take(std::size_t bytes) {
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory) throw std::bad_alloc();
    return memory;
}

void give(void* memory) { std::free(memory); }

}  // namespace overt
