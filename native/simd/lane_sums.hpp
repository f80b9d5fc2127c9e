// Sums over the lanes of several vectors at once.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

template <class T, int N>
struct Sums {
    static inline void of(const Vector<T>* v, T* to) {
        for (int n = 0; n < N; n++) to[n] = sum<T>(v[n]);
    }
};

#if defined(__AVX2__)
static inline void sums_of_four(__m256 a, __m256 b, __m256 c, __m256 d, float* to) {
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}
#if OVERT_BYTES == 32
template <>
struct Sums<float, 4> {
    static inline void of(const Vector<float>* v, float* to) { sums_of_four(v[0], v[1], v[2], v[3], to); }
};
#elif defined(__AVX512DQ__)
static inline __m256 halved(__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); }
template <>
struct Sums<float, 4> {
    static inline void of(const Vector<float>* v, float* to) {
        sums_of_four(halved(v[0]), halved(v[1]), halved(v[2]), halved(v[3]), to);
    }
};
#endif
#endif

}  // namespace overt::OVERT_LEVEL
