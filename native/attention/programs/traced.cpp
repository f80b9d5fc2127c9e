// Attention with the scores of a program, forward.
#include "attention/programs/program_tiles.hpp"
#include "attention/tiles/softmax_forward.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
void traced(const Inputs& inputs, const Score& score, void* output, void* sums) {
    SoftmaxForward<T, ProgramScores<T>>(inputs, score, static_cast<T*>(output), static_cast<T*>(sums)).run();
}

template void traced<float>(const Inputs&, const Score&, void*, void*);
template void traced<double>(const Inputs&, const Score&, void*, void*);

}  // namespace overt::OVERT_LEVEL
