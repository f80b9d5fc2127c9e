// The unit that multiplies pairs of bfloat16, if the machine has one; the SIMD level computes everything else.
#pragma once

#include "kernels.hpp"

namespace overt {

struct PairUnit {
    const char* name;
    void (*dot)(const Inputs&, const Score&, void* output, void* sums);
    void (*dot_gradients)(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
    void (*decode)(const Inputs&, const Score&, void* output, void* sums);  // for a few queries; nullptr: the level's own kernel
};

// The units that this machine runs, the fastest first; the emulation is the last.
const PairUnit* const* available_units(int* count);

// The unit for a bfloat16 call with more queries than decoding has; nullptr if the level's own kernel computes it.
const PairUnit* unit_of(const Inputs&);

const PairUnit* current_unit();

// The unit's kernel of the forward pass; nullptr if the level's own kernel computes it.
void (*unit_forward_of(const Inputs&))(const Inputs&, const Score&, void* output, void* sums);

// "none" for the level's own kernels, "best" for the default. Returns false and changes nothing if the machine has no unit of this name.
bool use_unit(const char* name);

}  // namespace overt
