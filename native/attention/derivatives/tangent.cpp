// Attention and its tangent, in one pass.
#include "attention/derivatives/tangent_pass.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
void tangent(const Inputs& inputs, const Score& score, const Directions& directions, const Tangents& to, bool known) {
    if (score.form == Form::program)
        TangentPass<T, MovingProgram<T>>(inputs, score, directions, to, known).run();
    else
        TangentPass<T, MovingDots<T>>(inputs, score, directions, to, known).run();
}

template void tangent<float>(const Inputs&, const Score&, const Directions&, const Tangents&, bool);
template void tangent<double>(const Inputs&, const Score&, const Directions&, const Tangents&, bool);

}  // namespace overt::OVERT_LEVEL
