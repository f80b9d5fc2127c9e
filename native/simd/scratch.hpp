// Working memory of the kernels, aligned for any vector. Compiled once, so that no level's instructions are used by another.
#pragma once

#include <cstddef>

namespace overt {

// Throws std::bad_alloc, which must not leave a parallel region.
void* allocate(std::size_t bytes);
void release(void* memory);

// Requests large pages where a kernel is about to write a large new buffer: one page fault then covers 2 MB instead of 4 KB.
void expect_writing(void* memory, std::size_t bytes);

}  // namespace overt
