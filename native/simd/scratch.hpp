// Working memory of the kernels, aligned for any vector. Compiled once, so that no level's instructions reach another.
#pragma once

#include <cstddef>

namespace overt {

// Throws std::bad_alloc; call it outside of parallel regions.
void* take(std::size_t bytes);
void give(void* memory);

// Asks for large pages where a kernel is about to write much that nobody has written before: one fault then serves 2 MB, not 4 KB.
void expect_writing(void* memory, std::size_t bytes);

}  // namespace overt
