// Attention under the normalizers that are not a softmax: which of their kernels computes a call.
#include "level.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
void normalized(const Inputs& inputs, const Score& score, const Normalization& by, void* output, void* sums) {
    if (by.kind == Normalizer::entmax)
        sparse<T>(inputs, score, by.alpha, output, sums);
    else
        elementwise<T>(inputs, score, by.kind, output, sums);
}

template <class T>
void normalized_gradients(const Inputs& inputs, const Score& score, const Normalization& by, const SavedDotForward& saved,
                          const Gradients& to) {
    if (score.form == Form::additive)
        normalized_additive_gradients<T>(inputs, score, by, saved, to);
    else if (by.kind == Normalizer::entmax)
        sparse_dot_gradients<T>(inputs, score, by.alpha, saved, to);
    else
        elementwise_dot_gradients<T>(inputs, score, by.kind, saved, to);
}

template void normalized<float>(const Inputs&, const Score&, const Normalization&, void*, void*);
template void normalized<double>(const Inputs&, const Score&, const Normalization&, void*, void*);
template void normalized_gradients<float>(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);
template void normalized_gradients<double>(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);

}  // namespace overt::OVERT_LEVEL
