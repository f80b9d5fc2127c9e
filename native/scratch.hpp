// Working memory of the kernels, aligned for any vector. Compiled once, so that no level's instructions reach another.
#pragma once

#include <cstddef>

namespace overt {

// Throws std::bad_alloc; call it outside of parallel regions.
void* take(std::size_t bytes);
void give(void* memory);

}  // namespace overt
