// The table of one level's kernels. levels.cpp chooses among the tables.
#include "level.hpp"

#define NAME_OF(level) #level
#define NAME(level) NAME_OF(level)

namespace overt::OVERT_LEVEL {

template <class T>
static constexpr Kernels KERNELS = {
    additive<T>, additive_gradients<T>, additive_scores<T>, additive_scores_gradients<T>, dot<T>, dot_gradients<T>,
    tangent<T>, second<T>, summary<T>, normalized<T>, normalized_gradients<T>, traced<T>, traced_gradients<T>,
};

static constexpr Smoothing SMOOTHING = {filter, slide, local, patch, patch_rows, bilateral, bilateral_rows, guided, risks, blend, wiener, segments};

extern const Level LEVEL;
const Level LEVEL = {NAME(OVERT_LEVEL), KERNELS<float>, KERNELS<double>, {multiply_adds, divisions}, &SMOOTHING};

}  // namespace overt::OVERT_LEVEL
