// The choice of the SIMD level: the best one that the machine supports, or a chosen one.
#pragma once

#include "kernels.hpp"

namespace overt {

// The levels that this machine supports, best first.
const Level* const* available_levels(int* count);

const Level& current_level();

// Returns false and changes nothing if the machine has no level of this name.
bool use_level(const char* name);

}  // namespace overt
