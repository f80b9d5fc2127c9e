// Which unit multiplies pairs of bfloat16, where the machine has one: next to the level, which computes everything else.
#pragma once

#include "kernels.hpp"

namespace overt {

struct PairUnit {
    const char* name;
    void (*dot)(const Inputs&, const Score&, void* output, void* sums);
    void (*dot_gradients)(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
    void (*decode)(const Inputs&, const Score&, void* output, void* sums);  // of a few queries; nullptr: the level's own kernel
};

// The units that this machine runs, the fastest first; the emulation is the last.
const PairUnit* const* available_units(int* count);

// The unit of a call of bfloat16 alone with more queries than decoding has; nullptr where the level's own kernel computes it.
const PairUnit* unit_of(const Inputs&);

const PairUnit* current_unit();

// The unit's kernel of the forward pass; nullptr where the level's own computes it.
void (*unit_forward_of(const Inputs&))(const Inputs&, const Score&, void* output, void* sums);

// "none" for the level's own kernels, "best" for the default. Returns false and changes nothing where the machine has no unit of this name.
bool use_unit(const char* name);

}  // namespace overt
