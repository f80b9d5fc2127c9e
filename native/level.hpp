// The kernels, compiled once for each SIMD level. A kernel file defines one kernel and instantiates it for float and double.
#pragma once

#include "kernels.hpp"
#include "smoothing/smoothing.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
void additive(const Inputs&, const Score&, void* output, void* log_sum_exp);
template <class T>
void additive_gradients(const Inputs&, const Score&, const SavedForward&, const Gradients&);
template <class T>
void additive_scores(const Inputs&, const Score&, void* scores);
template <class T>
void additive_scores_gradients(const Inputs&, const Score&, const void* upstream, const Gradients&);
template <class T>
void dot(const Inputs&, const Score&, void* output, void* sums);
template <class T>
void dot_gradients(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
template <class T>
void tangent(const Inputs&, const Score&, const Directions&, const Tangents&, bool known);
template <class T>
void second(const Inputs&, const Score&, const SavedDotForward&, const Directions&, const Gradients&, void* of_output, void* mean,
            bool known);
template <class T>
void summary(const Inputs&, const Score&, const Summary&);
template <class T>
void normalized(const Inputs&, const Score&, const Normalization&, void* output, void* sums);
template <class T>
void normalized_gradients(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);

// Their parts: any score under sigmoid or sum, and under entmax; gradients of these for dot products; gradients for additive scores.
template <class T>
void elementwise(const Inputs&, const Score&, Normalizer, void* output, void* sums);
template <class T>
void sparse(const Inputs&, const Score&, const double* alpha, void* output, void* sums);
template <class T>
void sparse_dot_gradients(const Inputs&, const Score&, const double* alpha, const SavedDotForward&, const Gradients&);
template <class T>
void elementwise_dot_gradients(const Inputs&, const Score&, Normalizer, const SavedDotForward&, const Gradients&);
template <class T>
void normalized_additive_gradients(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);
template <class T>
void traced(const Inputs&, const Score&, void* output, void* sums);
template <class T>
void traced_gradients(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);

Index multiply_adds(Index rounds);
Index divisions(Index rounds);

void filter(const Filter&);
void slide(const Slide&);
void local(const Local&);
void patch(const Patch&);
void patch_rows(const PatchRows&);
void bilateral(const Bilateral&);
void bilateral_rows(const BilateralRows&);
void guided(const Guided&);
void risks(const Risks&);
void blend(const Blend&);
void wiener(const Wiener&);
void segments(const Segments&);

}  // namespace overt::OVERT_LEVEL
