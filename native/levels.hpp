// Which SIMD level's kernels are used: the best that the machine can run, or the one asked for.
#pragma once

#include "kernels.hpp"

namespace overt {

// What this machine can run, best first.
const Level* const* available_levels(int* count);

const Level& current_level();

// False, and nothing changed, where the machine has no level of this name.
bool use_level(const char* name);

}  // namespace overt
