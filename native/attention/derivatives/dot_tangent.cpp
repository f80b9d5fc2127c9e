// Dot-product attention and its tangent, in one pass.
#include "attention/derivatives/dot_tangent.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
void dot_tangent(const Inputs& inputs, const Score& score, const Directions& directions, const Tangents& to) {
    DotTangent<T>(inputs, score, directions, to, false).run();
}

template void dot_tangent<float>(const Inputs&, const Score&, const Directions&, const Tangents&);
template void dot_tangent<double>(const Inputs&, const Score&, const Directions&, const Tangents&);

}  // namespace overt::OVERT_LEVEL
