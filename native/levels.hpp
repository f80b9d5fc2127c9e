// Which SIMD level's kernels are used: the best one that the machine can run, or the one that was chosen.
#pragma once

#include "kernels.hpp"

namespace overt {

// The levels that this machine can run, best first.
const Level* const* available_levels(int* count);

const Level& current_level();

// Returns false and changes nothing where the machine has no level of this name.
bool use_level(const char* name);

}  // namespace overt
