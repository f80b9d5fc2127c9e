// Vectors of one SIMD level. They are the compiler's own vector types, so that one source serves every width.
//
// OVERT_LEVEL is the namespace of the level, OVERT_BYTES the width of its vectors: 16, 32 or 64.
#pragma once

#include <cstdint>

#include "kernels.hpp"
#include "simd/scratch.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// For functions whose vectors and constants would otherwise go through memory in a call.
#define OVERT_INLINE static inline __attribute__((always_inline))
#define OVERT_INLINE_MEMBER inline __attribute__((always_inline))

namespace overt::OVERT_LEVEL {

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
    typedef float Vector __attribute__((vector_size(OVERT_BYTES)));
    typedef std::int32_t Whole __attribute__((vector_size(OVERT_BYTES)));
    typedef std::uint32_t Bits __attribute__((vector_size(OVERT_BYTES)));
    typedef float Loose __attribute__((vector_size(OVERT_BYTES), aligned(4), may_alias));
    typedef std::int32_t LooseWhole __attribute__((vector_size(OVERT_BYTES), aligned(4), may_alias));
    typedef std::int32_t Number;
};
template <>
struct Lanes<double> {
    typedef double Vector __attribute__((vector_size(OVERT_BYTES)));
    typedef std::int64_t Whole __attribute__((vector_size(OVERT_BYTES)));
    typedef std::uint64_t Bits __attribute__((vector_size(OVERT_BYTES)));
    typedef double Loose __attribute__((vector_size(OVERT_BYTES), aligned(8), may_alias));
    typedef std::int64_t LooseWhole __attribute__((vector_size(OVERT_BYTES), aligned(8), may_alias));
    typedef std::int64_t Number;
};

template <class T>
using Vector = typename Lanes<T>::Vector;
template <class T>
using Whole = typename Lanes<T>::Whole;
template <class T>
using Bits = typename Lanes<T>::Bits;  // unsigned: what overflows is cut off
template <class T>
constexpr int WIDTH = OVERT_BYTES / static_cast<int>(sizeof(T));

template <class T>
static inline Vector<T> load(const T* from) {
    return *reinterpret_cast<const typename Lanes<T>::Loose*>(from);
}

template <class T>
static inline void store(T* to, Vector<T> from) {
    *reinterpret_cast<typename Lanes<T>::Loose*>(to) = from;
}

template <class T>
static inline Vector<T> broadcast(T number) {
    return number - Vector<T>{};  // x - 0 is x for every x, x + 0 is not: compilers remove only the former
}

// a * b + c, contracted to one instruction where the level has it (-ffp-contract=fast).
template <class V>
static inline V multiply_add(V a, V b, V c) {
    return a * b + c;
}

// The minimum, lane by lane; b where either is NaN. x86 has an instruction with this meaning, but compilers do not use it by themselves.
template <class V>
static inline V lane_min(V a, V b) {
    return a < b ? a : b;
}
template <class V>
static inline V lane_max(V a, V b) {
    return a > b ? a : b;
}
#if defined(__x86_64__)
#if OVERT_BYTES == 64 && defined(__AVX512F__)
static inline Vector<float> lane_min(Vector<float> a, Vector<float> b) { return _mm512_min_ps(a, b); }
static inline Vector<float> lane_max(Vector<float> a, Vector<float> b) { return _mm512_max_ps(a, b); }
static inline Vector<double> lane_min(Vector<double> a, Vector<double> b) { return _mm512_min_pd(a, b); }
static inline Vector<double> lane_max(Vector<double> a, Vector<double> b) { return _mm512_max_pd(a, b); }
#elif OVERT_BYTES == 32 && defined(__AVX2__)
static inline Vector<float> lane_min(Vector<float> a, Vector<float> b) { return _mm256_min_ps(a, b); }
static inline Vector<float> lane_max(Vector<float> a, Vector<float> b) { return _mm256_max_ps(a, b); }
static inline Vector<double> lane_min(Vector<double> a, Vector<double> b) { return _mm256_min_pd(a, b); }
static inline Vector<double> lane_max(Vector<double> a, Vector<double> b) { return _mm256_max_pd(a, b); }
#elif OVERT_BYTES == 16
static inline Vector<float> lane_min(Vector<float> a, Vector<float> b) { return _mm_min_ps(a, b); }
static inline Vector<float> lane_max(Vector<float> a, Vector<float> b) { return _mm_max_ps(a, b); }
static inline Vector<double> lane_min(Vector<double> a, Vector<double> b) { return _mm_min_pd(a, b); }
static inline Vector<double> lane_max(Vector<double> a, Vector<double> b) { return _mm_max_pd(a, b); }
#endif
#endif

// 1 / v for v from 1 to 2^126, to about one unit in the last place.
template <class T>
OVERT_INLINE Vector<T> reciprocal(Vector<T> v) {
    return 1 / v;
}
#if defined(__x86_64__) && OVERT_BYTES == 64 && defined(__AVX512F__)
// An estimate of 14 bits and one Newton step: a division takes four times as long.
template <>
inline __attribute__((always_inline)) Vector<float> reciprocal<float>(Vector<float> v) {
    Vector<float> estimate = _mm512_rcp14_ps(v);
    return multiply_add(estimate, 1 - v * estimate, estimate);
}
#endif

// The square roots of the lanes.
static inline Vector<double> square_root(Vector<double> v) {
#if defined(__x86_64__) && OVERT_BYTES == 64 && defined(__AVX512F__)
    return _mm512_sqrt_pd(v);
#elif defined(__x86_64__) && OVERT_BYTES == 32 && defined(__AVX2__)
    return _mm256_sqrt_pd(v);
#elif defined(__x86_64__) && OVERT_BYTES == 16
    return _mm_sqrt_pd(v);
#else
    for (int i = 0; i < WIDTH<double>; i++) v[i] = __builtin_sqrt(v[i]);
    return v;
#endif
}

static inline Vector<float> square_root(Vector<float> v) {
#if defined(__x86_64__) && OVERT_BYTES == 64 && defined(__AVX512F__)
    return _mm512_sqrt_ps(v);
#elif defined(__x86_64__) && OVERT_BYTES == 32 && defined(__AVX2__)
    return _mm256_sqrt_ps(v);
#elif defined(__x86_64__) && OVERT_BYTES == 16
    return _mm_sqrt_ps(v);
#else
    for (int i = 0; i < WIDTH<float>; i++) v[i] = __builtin_sqrtf(v[i]);
    return v;
#endif
}

template <class T>
static inline T sum(Vector<T> v) {
    T total = 0;
    for (int i = 0; i < WIDTH<T>; i++) total += v[i];
    return total;
}

template <class T>
static inline T horizontal_max(Vector<T> v) {
    T maximum = v[0];
    for (int i = 1; i < WIDTH<T>; i++) maximum = v[i] > maximum ? v[i] : maximum;
    return maximum;
}

#if defined(__AVX512F__) && OVERT_BYTES == 64
template <>
inline float sum<float>(Vector<float> v) { return _mm512_reduce_add_ps(v); }
template <>
inline float horizontal_max<float>(Vector<float> v) { return _mm512_reduce_max_ps(v); }
#endif

// A bit mask: which lanes of a are greater than those of b.
template <class T>
static inline unsigned lanes_above(Vector<T> a, Vector<T> b) {
    Whole<T> above = a > b;
    unsigned bits = 0;
    for (int i = 0; i < WIDTH<T>; i++) bits |= (above[i] & 1u) << i;
    return bits;
}
#if defined(__AVX512F__) && OVERT_BYTES == 64
template <>
inline unsigned lanes_above<float>(Vector<float> a, Vector<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
template <>
inline unsigned lanes_above<double>(Vector<double> a, Vector<double> b) { return _mm512_cmp_pd_mask(a, b, _CMP_GT_OQ); }
#elif defined(__AVX2__) && OVERT_BYTES == 32
template <>
inline unsigned lanes_above<float>(Vector<float> a, Vector<float> b) { return _mm256_movemask_ps((Vector<float>)(a > b)); }
template <>
inline unsigned lanes_above<double>(Vector<double> a, Vector<double> b) { return _mm256_movemask_pd((Vector<double>)(a > b)); }
#elif defined(__SSE2__) && OVERT_BYTES == 16
template <>
inline unsigned lanes_above<float>(Vector<float> a, Vector<float> b) { return _mm_movemask_ps((Vector<float>)(a > b)); }
template <>
inline unsigned lanes_above<double>(Vector<double> a, Vector<double> b) { return _mm_movemask_pd((Vector<double>)(a > b)); }
#endif

// e^x to about one unit in the last place. 0 below LOWEST; above HIGHEST it is e^HIGHEST; NaN stays NaN.
template <class T>
struct Exponential;
template <>
struct Exponential<float> {
    static constexpr float LOWEST = -87.0f, HIGHEST = 88.0f, LOG2E = 1.44269504088896341f;
    static constexpr float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f, ROUND = 12582912.0f;
    static constexpr int SHIFT = 23, BIAS = 127;
    OVERT_INLINE Vector<float> exponential_minus_one(Vector<float> r) {  // e^r - 1 on [-ln2/2, ln2/2]
        // Evaluated in pairs, so that fewer operations wait for each other.
        Vector<float> square = r * r;
        Vector<float> first = multiply_add(broadcast(1.9875691500e-4f), r, broadcast(1.3981999507e-3f));
        Vector<float> second = multiply_add(broadcast(8.3334519073e-3f), r, broadcast(4.1665795894e-2f));
        Vector<float> third = multiply_add(broadcast(1.6666665459e-1f), r, broadcast(5.0000001201e-1f));
        return multiply_add(multiply_add(multiply_add(first, square, second), square, third), square, r);
    }
};
template <>
struct Exponential<double> {
    static constexpr double LOWEST = -708.0, HIGHEST = 709.0, LOG2E = 1.4426950408889634074;
    static constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10, ROUND = 6755399441055744.0;
    static constexpr int SHIFT = 52, BIAS = 1023;
    OVERT_INLINE Vector<double> exponential_minus_one(Vector<double> r) {  // Taylor to r^13: below 1e-17 on this range
        Vector<double> p = broadcast(1.0 / 6227020800.0);
        p = multiply_add(p, r, broadcast(1.0 / 479001600.0));
        p = multiply_add(p, r, broadcast(1.0 / 39916800.0));
        p = multiply_add(p, r, broadcast(1.0 / 3628800.0));
        p = multiply_add(p, r, broadcast(1.0 / 362880.0));
        p = multiply_add(p, r, broadcast(1.0 / 40320.0));
        p = multiply_add(p, r, broadcast(1.0 / 5040.0));
        p = multiply_add(p, r, broadcast(1.0 / 720.0));
        p = multiply_add(p, r, broadcast(1.0 / 120.0));
        p = multiply_add(p, r, broadcast(1.0 / 24.0));
        p = multiply_add(p, r, broadcast(1.0 / 6.0));
        p = multiply_add(p, r, broadcast(0.5));
        return multiply_add(p, r * r, r);
    }
};

// e^x = (1 + less_one) * power, for x between LOWEST and HIGHEST; undefined elsewhere.
template <class T>
struct ExponentialParts {
    Vector<T> less_one, power;

    OVERT_INLINE_MEMBER explicit ExponentialParts(Vector<T> x) {
        using E = Exponential<T>;
        Vector<T> shifted =
            multiply_add(x, broadcast(E::LOG2E), broadcast(E::ROUND));  // the integer part, in the low bits of the mantissa
        Vector<T> whole = shifted - E::ROUND;
        Vector<T> rest = multiply_add(whole, broadcast(-E::LN2_HIGH), x);
        less_one = E::exponential_minus_one(multiply_add(whole, broadcast(-E::LN2_LOW), rest));
        // These bits, shifted to the exponent of 1, are the power of two. The bits of ROUND itself are shifted out.
        power = (Vector<T>)(((Bits<T>)shifted << E::SHIFT) + (Bits<T>)broadcast(T(1)));
    }
};

// The same for x between LOWEST and HIGHEST; undefined elsewhere.
template <class T>
OVERT_INLINE Vector<T> exponential_within(Vector<T> x) {
    ExponentialParts<T> parts(x);
    return (parts.less_one + 1) * parts.power;
}

// e^x - 1 to a few units in the last place, near 0 too, on the same range.
template <class T>
OVERT_INLINE Vector<T> exponential_less_one_within(Vector<T> x) {
    ExponentialParts<T> parts(x);
    return multiply_add(parts.less_one, parts.power, parts.power - 1);
}

template <class T>
OVERT_INLINE Vector<T> exponential(Vector<T> x) {
    using E = Exponential<T>;
    Vector<T> exponentiated = exponential_within<T>(lane_max(broadcast(E::LOWEST), lane_min(broadcast(E::HIGHEST), x)));
    return x < E::LOWEST ? Vector<T>{} : exponentiated;
}

// 2^r on [-1/2, 1/2], interpolated at Chebyshev nodes: errors below 5e-9 (float) and 8e-18 (double). Evaluated in pairs, so that
// fewer operations wait for each other.
OVERT_INLINE Vector<float> small_power(Vector<float> r) {
    Vector<float> square = r * r;
    Vector<float> first = multiply_add(broadcast(1.54631629451e-4f), r, broadcast(1.33908633647e-3f));
    Vector<float> second = multiply_add(broadcast(9.61808255728e-3f), r, broadcast(5.55035711422e-2f));
    Vector<float> third = multiply_add(broadcast(2.40226507606e-1f), r, broadcast(6.93147188026e-1f));
    return multiply_add(multiply_add(multiply_add(first, square, second), square, third), r, broadcast(1.0f));
}
OVERT_INLINE Vector<double> small_power(Vector<double> r) {
    Vector<double> square = r * r;
    Vector<double> even = multiply_add(broadcast(4.4549605981865186e-10), square, broadcast(1.0178062445845774e-07));
    Vector<double> odd = multiply_add(broadcast(7.072585949269223e-09), square, broadcast(1.321544258792169e-06));
    even = multiply_add(even, square, broadcast(1.525273382983612e-05));
    odd = multiply_add(odd, square, broadcast(0.0001540353044173605));
    even = multiply_add(even, square, broadcast(0.0013333558146416936));
    odd = multiply_add(odd, square, broadcast(0.009618129107606888));
    even = multiply_add(even, square, broadcast(0.0555041086648216));
    odd = multiply_add(odd, square, broadcast(0.24022650695910097));
    even = multiply_add(even, square, broadcast(0.6931471805599453));
    return multiply_add(multiply_add(odd, r, even), r, broadcast(1.0));
}

// 2^x where it is a normal number; undefined elsewhere, but NaN stays NaN.
template <class T>
OVERT_INLINE Vector<T> power_within(Vector<T> x) {
    using E = Exponential<T>;
    Vector<T> shifted = x + E::ROUND;  // the integer part, in the low bits of the mantissa
    Bits<T> power = ((Bits<T>)shifted << E::SHIFT) + (Bits<T>)broadcast(T(1));
    return small_power(x - (shifted - E::ROUND)) * (Vector<T>)power;
}

// 2^x, at two thirds of the cost of e^x. 0 where it is below the smallest normal number; x must be below 127; NaN stays NaN.
template <class T>
OVERT_INLINE Vector<T> power_of_two(Vector<T> x) {
    return x < T(1 - Exponential<T>::BIAS) ? Vector<T>{} : power_within<T>(x);
}

// Working memory that is released at the end of the scope.
template <class T>
struct Scratch {
    T* data;
    explicit Scratch(Index count) : data(static_cast<T*>(allocate(static_cast<std::size_t>(count) * sizeof(T)))) {}
    ~Scratch() { release(data); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};

template <class N>
static inline N min_of(N a, N b) {
    return a < b ? a : b;
}
template <class N>
static inline N max_of(N a, N b) {
    return a > b ? a : b;
}

// Copies a row and converts it to T.
template <class T, class From>
static inline void copy_numbers(const From* from, Index count, T* to) {
    for (Index i = 0; i < count; i++) to[i] = static_cast<T>(from[i]);
}

static inline float float16_to_float(std::uint16_t half) {
    std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16, rest = half & 0x7fffu, bits = rest << 13;
    if (rest >= 0x7c00u) {
        bits += 0x70000000u;  // infinity and NaN
    } else {
        // The exponent's bias is smaller by 112. Multiplying by 2^112 corrects it, for subnormal numbers too.
        float number;
        __builtin_memcpy(&number, &bits, 4);
        number *= 0x1p112f;
        __builtin_memcpy(&bits, &number, 4);
    }
    bits |= sign;
    float number;
    __builtin_memcpy(&number, &bits, 4);
    return number;
}

static inline float bfloat16_to_float(std::uint16_t half) {
    std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float number;
    __builtin_memcpy(&number, &bits, 4);
    return number;
}

static inline void copy_float16(const std::uint16_t* from, Index count, float* to) {
    Index i = 0;
#if defined(__F16C__)
    // Compilers do not use these instructions by themselves.
#if OVERT_BYTES == 64 && defined(__AVX512F__)
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
#endif
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < count; i++) to[i] = float16_to_float(from[i]);
}
static inline void copy_float16(const std::uint16_t* from, Index count, double* to) {
    for (Index i = 0; i < count; i++) to[i] = float16_to_float(from[i]);
}

template <class T>
static void read_row(const Matrix& matrix, Index entry, Index row, Index count, T* to, Index column = 0) {
    Index start = matrix.offsets[entry] + row * matrix.row + column;
    switch (matrix.kind) {
        case Kind::float32: return copy_numbers(static_cast<const float*>(matrix.data) + start, count, to);
        case Kind::float64: return copy_numbers(static_cast<const double*>(matrix.data) + start, count, to);
        case Kind::float16: return copy_float16(static_cast<const std::uint16_t*>(matrix.data) + start, count, to);
        case Kind::int8: return copy_numbers(static_cast<const std::int8_t*>(matrix.data) + start, count, to);
        default: {
            const std::uint16_t* from = static_cast<const std::uint16_t*>(matrix.data) + start;
            for (Index i = 0; i < count; i++) to[i] = bfloat16_to_float(from[i]);
        }
    }
}

template <class T>
constexpr Kind KIND = sizeof(T) == 4 ? Kind::float32 : Kind::float64;

// A pointer to a row, from a column on: into the matrix if it is of type T already, else to `spare`, which then holds a converted copy.
template <class T>
static const T* row_of(const Matrix& matrix, Index entry, Index row, Index count, T* spare, Index column = 0) {
    if (matrix.kind == KIND<T>) return static_cast<const T*>(matrix.data) + matrix.offsets[entry] + row * matrix.row + column;
    read_row(matrix, entry, row, count, spare, column);
    return spare;
}

}  // namespace overt::OVERT_LEVEL
