// Sums over the lanes of several vectors at once.
#pragma once

#include "simd/unrolled.hpp"

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

// to[r * row + n] = the sum of v[r][n], which stay in registers.
template <class T, int R, int N>
struct RowSums {
    OVERT_INLINE void of(const Vector<T> (&v)[R][N], T* to, Index row) {
        for (int r = 0; r < R; r++) Sums<T, N>::of(v[r], to + r * row);
    }
};

#if OVERT_BYTES == 64 && defined(__AVX512DQ__)
template <>
struct RowSums<float, 4, 4> {
    OVERT_INLINE __m512 folded(__m512 a, __m512 b) {
        return _mm512_add_ps(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(1, 0, 3, 2)));
    }
    OVERT_INLINE void of(const Vector<float> (&v)[4][4], float* to, Index row) {
        __m512 quarters[4];  // of sum n: four parts of each row
        unrolled<4>([&](auto n) OVERT_UNROLLED {
            __m512 first = folded(v[0][n], v[1][n]), second = folded(v[2][n], v[3][n]);
            quarters[n] = _mm512_add_ps(_mm512_shuffle_f32x4(first, second, _MM_SHUFFLE(2, 0, 2, 0)),
                                        _mm512_shuffle_f32x4(first, second, _MM_SHUFFLE(3, 1, 3, 1)));
        });
        __m512 first = _mm512_add_ps(_mm512_unpacklo_ps(quarters[0], quarters[1]), _mm512_unpackhi_ps(quarters[0], quarters[1]));
        __m512 second = _mm512_add_ps(_mm512_unpacklo_ps(quarters[2], quarters[3]), _mm512_unpackhi_ps(quarters[2], quarters[3]));
        __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(first, second, _MM_SHUFFLE(1, 0, 1, 0)),
                                    _mm512_shuffle_ps(first, second, _MM_SHUFFLE(3, 2, 3, 2)));
        _mm_storeu_ps(to, _mm512_castps512_ps128(sums)), _mm_storeu_ps(to + row, _mm512_extractf32x4_ps(sums, 1));
        _mm_storeu_ps(to + 2 * row, _mm512_extractf32x4_ps(sums, 2)), _mm_storeu_ps(to + 3 * row, _mm512_extractf32x4_ps(sums, 3));
    }
};
#endif

}  // namespace overt::OVERT_LEVEL
