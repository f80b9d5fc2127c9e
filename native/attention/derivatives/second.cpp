// The derivative of the backward pass; a first pass computes each row's mean and the output's tangent.
#include "attention/derivatives/dot_second.hpp"
#include "attention/derivatives/traced_second.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
void second(const Inputs& inputs, const Score& score, const SavedDotForward& saved, const Directions& directions, const Gradients& to,
            void* of_output, void* mean, bool known) {
    Tangents first{const_cast<void*>(saved.output), const_cast<void*>(saved.sums), of_output, mean};
    tangent<T>(inputs, score, directions, first, known);
    if (score.form == Form::program)
        TracedSecond<T>(inputs, score, saved, directions, to, first).run();
    else if (to.query || to.key || to.value || to.bias)
        DotSecond<T>(inputs, score, saved, directions, to, first).run();
}

template void second<float>(const Inputs&, const Score&, const SavedDotForward&, const Directions&, const Gradients&, void*, void*, bool);
template void second<double>(const Inputs&, const Score&, const SavedDotForward&, const Directions&, const Gradients&, void*, void*, bool);

}  // namespace overt::OVERT_LEVEL
