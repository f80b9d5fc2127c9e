// Elementwise functions of a vector of numbers, to a few units in the last place. Sine, cosine, arctangent and the error function are
// the C library's, lane by lane.
#pragma once

#include "attention/scores/dot_scores.hpp"

// For long functions that many instructions share.
#define OVERT_APART static __attribute__((noinline))

namespace overt::OVERT_LEVEL {

template <class T>
OVERT_INLINE Vector<T> absolute_value(Vector<T> x) {
    return (Vector<T>)(((Bits<T>)x << 1) >> 1);
}

// e^x, infinite beyond the largest number.
template <class T>
OVERT_INLINE Vector<T> exponential_of_any(Vector<T> x) {
    return x > Exponential<T>::HIGHEST ? broadcast(T(__builtin_inf())) : exponential<T>(x);
}

// log x = e log 2 + log m for x = m 2^e, with m from 1/sqrt 2 to sqrt 2 and log m = 2 artanh((m - 1) / (m + 1)) as a series.
template <class T>
OVERT_APART Vector<T> natural_logarithm(Vector<T> x) {
    using E = Exponential<T>;
    constexpr T SMALLEST = sizeof(T) == 4 ? T(0x1p-126f) : T(0x1p-1022), LIFT = sizeof(T) == 4 ? T(0x1p24f) : T(0x1p54);
    constexpr int LIFTED = sizeof(T) == 4 ? 24 : 54, TERMS_OF_SERIES = sizeof(T) == 4 ? 6 : 12;
    constexpr T INFINITE = __builtin_inf();
    Whole<T> small = x < SMALLEST;
    Vector<T> lifted = small ? x * LIFT : x;
    Bits<T> bits = (Bits<T>)lifted, one = (Bits<T>)broadcast(T(1));
    Bits<T> fraction = (bits << (8 * sizeof(T) - E::SHIFT)) >> (8 * sizeof(T) - E::SHIFT);
    Vector<T> mantissa = (Vector<T>)(fraction | one);
    Whole<T> power = (Whole<T>)(bits >> E::SHIFT) - static_cast<typename Lanes<T>::Number>(E::BIAS);
    Whole<T> large = mantissa > T(1.41421356237309504880);
    mantissa = large ? mantissa * T(0.5) : mantissa;
    power = power - large;  // a true lane is -1
    power = power - (small & static_cast<typename Lanes<T>::Number>(LIFTED));
    Vector<T> exponent = __builtin_convertvector(power, Vector<T>);
    Vector<T> s = (mantissa - 1) / (mantissa + 1), z = s * s, series = broadcast(T(1) / (2 * TERMS_OF_SERIES + 1));
    for (int n = TERMS_OF_SERIES - 1; n > 0; n--) series = multiply_add(series, z, broadcast(T(1) / (2 * n + 1)));
    Vector<T> of_mantissa = multiply_add(s * z * series, broadcast(T(2)), s + s);
    Vector<T> result = multiply_add(exponent, broadcast(E::LN2_HIGH), multiply_add(exponent, broadcast(E::LN2_LOW), of_mantissa));
    result = x == INFINITE ? x : result;
    result = x == T(0) ? broadcast(-INFINITE) : result;
    return x >= T(0) ? result : broadcast(T(__builtin_nan("")));
}

// log(1 + x): what 1 + x has lost is added to first order.
template <class T>
OVERT_APART Vector<T> logarithm_of_one_more(Vector<T> x) {
    constexpr T INFINITE = __builtin_inf();
    Vector<T> sum = x + T(1), lost = x - (sum - T(1));
    Vector<T> result = natural_logarithm<T>(sum);
    return (sum == T(0)) | (sum == INFINITE) ? result : result + lost / sum;
}

template <class T>
OVERT_APART Vector<T> exponential_less_one(Vector<T> x) {
    constexpr T NEAR = 0.34;  // below ln2 / 2
    Vector<T> near = Exponential<T>::exponential_minus_one(lane_max(broadcast(-NEAR), lane_min(broadcast(NEAR), x)));
    return (x < NEAR) & (x > -NEAR) ? near : exponential_of_any<T>(x) - T(1);
}

// x^y. Of a negative x it is NaN but for whole y.
template <class T>
OVERT_APART Vector<T> power_of(Vector<T> x, Vector<T> y) {
    constexpr T INFINITE = __builtin_inf();
    constexpr T ROUND = Exponential<T>::ROUND;
    Vector<T> size = absolute_value<T>(x), result = exponential_of_any<T>(y * natural_logarithm<T>(size));
    Vector<T> whole = (y + ROUND) - ROUND, half = (y * T(0.5) + ROUND) - ROUND;
    Vector<T> of_negative = half + half == y ? result : -result;
    of_negative = whole == y ? of_negative : broadcast(T(__builtin_nan("")));
    result = x < T(0) ? of_negative : result;
    Vector<T> of_zero = y > T(0) ? Vector<T>{} : broadcast(INFINITE);
    result = x == T(0) ? of_zero : result;
    return y == T(0) ? broadcast(T(1)) : result;
}

template <class T>
OVERT_INLINE Vector<T> logistic(Vector<T> x) {
    return T(1) / (T(1) + exponential<T>(-x));
}

template <class T>
OVERT_INLINE Vector<T> sign_of(Vector<T> x) {
    Vector<T> result = x > T(0) ? broadcast(T(1)) : Vector<T>{};
    result = x < T(0) ? broadcast(T(-1)) : result;
    return x == x ? result : x;
}

// The larger number; NaN where either is.
template <class T>
OVERT_INLINE Vector<T> maximum_of(Vector<T> x, Vector<T> y) {
    Vector<T> result = lane_max(y, x);
    return y == y ? result : y;
}
template <class T>
OVERT_INLINE Vector<T> minimum_of(Vector<T> x, Vector<T> y) {
    Vector<T> result = lane_min(y, x);
    return y == y ? result : y;
}

template <class T, class Function>
static inline Vector<T> lane_by_lane(Vector<T> x, Function function) {
    for (int i = 0; i < WIDTH<T>; i++) x[i] = static_cast<T>(function(x[i]));
    return x;
}
OVERT_INLINE float sine_of(float x) { return __builtin_sinf(x); }
OVERT_INLINE double sine_of(double x) { return __builtin_sin(x); }
OVERT_INLINE float cosine_of(float x) { return __builtin_cosf(x); }
OVERT_INLINE double cosine_of(double x) { return __builtin_cos(x); }
OVERT_INLINE float error_function_of(float x) { return __builtin_erff(x); }
OVERT_INLINE double error_function_of(double x) { return __builtin_erf(x); }
OVERT_INLINE float arctangent_of(float x) { return __builtin_atanf(x); }
OVERT_INLINE double arctangent_of(double x) { return __builtin_atan(x); }

}  // namespace overt::OVERT_LEVEL
