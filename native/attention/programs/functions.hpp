// Elementwise functions of a vector of numbers, to a few units in the last place.
#pragma once

#include "attention/scores/dot_scores.hpp"

// For long functions that many instructions use.
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

// log(1 + x), with a first-order correction of the rounding of 1 + x.
template <class T>
OVERT_APART Vector<T> logarithm_of_one_more(Vector<T> x) {
    constexpr T INFINITE = __builtin_inf();
    Vector<T> sum = x + T(1), lost = x - (sum - T(1));
    Vector<T> result = natural_logarithm<T>(sum);
    return (sum == T(0)) | (sum == INFINITE) ? result : result + lost / sum;
}

template <class T>
OVERT_APART Vector<T> exponential_less_one(Vector<T> x) {
    using E = Exponential<T>;
    Vector<T> bounded = lane_max(broadcast(E::LOWEST), lane_min(broadcast(E::HIGHEST), x));
    return x > E::HIGHEST ? broadcast(T(__builtin_inf())) : exponential_less_one_within<T>(bounded);
}

// x^y, to about |y log x| units. NaN for negative x, except for integer y.
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
    return reciprocal<T>(T(1) + exponential<T>(-x));
}

template <class T>
OVERT_INLINE Vector<T> sign_of(Vector<T> x) {
    Vector<T> result = x > T(0) ? broadcast(T(1)) : Vector<T>{};
    result = x < T(0) ? broadcast(T(-1)) : result;
    return x == x ? result : x;
}

// The larger number; NaN if either is NaN.
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

// sum_n c_n x^n, the last coefficient first.
template <class T, int N>
OVERT_INLINE Vector<T> polynomial(const double (&coefficients)[N], Vector<T> x) {
    Vector<T> sum = broadcast(static_cast<T>(coefficients[0]));
    for (int n = 1; n < N; n++) sum = multiply_add(sum, x, broadcast(static_cast<T>(coefficients[n])));
    return sum;
}

// Sine or cosine by its series, of the remainder after a multiple of pi / 2, subtracted in three parts. Beyond FAR, by the C library.
template <class T>
OVERT_APART Vector<T> sine_or_cosine(Vector<T> x, bool cosine) {
    constexpr bool SINGLE = sizeof(T) == 4;
    constexpr T FAR = SINGLE ? 8192 : 1e6, ROUND = Exponential<T>::ROUND, PER_QUARTER = 0.63661977236758134308;
    constexpr T FIRST = SINGLE ? 1.5703125 : 1.57079632673412561417, SECOND = SINGLE ? 4.837512969970703125e-4 : 6.07710050630396597660e-11,
                THIRD = SINGLE ? 7.54978995489188216e-8 : 2.02226624879595063154e-21;
    if (lanes_above<T>(absolute_value<T>(x), broadcast(FAR)))
        return lane_by_lane<T>(x, [cosine](T y) { return cosine ? __builtin_cos(y) : __builtin_sin(y); });
    Vector<T> shifted = multiply_add(x, broadcast(PER_QUARTER), broadcast(ROUND)), quarters = shifted - ROUND;
    Vector<T> rest = multiply_add(quarters, broadcast(-FIRST), x);
    rest = multiply_add(quarters, broadcast(-SECOND), rest);
    rest = multiply_add(quarters, broadcast(-THIRD), rest);
    static constexpr double SINES[] = {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                                       1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1},
                            COSINES[] = {1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                                         1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2, 1};
    Vector<T> square = rest * rest, sine = polynomial<T>(SINES, square) * rest, other = polynomial<T>(COSINES, square);
    Bits<T> quarter = (Bits<T>)shifted + static_cast<typename Lanes<T>::Number>(cosine ? 1 : 0);
    Vector<T> result = (quarter & 1) == 0 ? sine : other;
    return (Vector<T>)((Bits<T>)result ^ ((quarter & 2) << (8 * static_cast<int>(sizeof(T)) - 2)));
}

// atan x = atan u + a multiple of pi / 4, with |u| up to tan(pi / 8); the series of atan u in u^2, as long as rounding needs it.
template <class T>
OVERT_APART Vector<T> arctangent(Vector<T> x) {
    constexpr T EIGHTH = 0.41421356237309504880, QUARTER = 0.78539816339744830962;
    constexpr int TERMS_OF_SERIES = sizeof(T) == 4 ? 10 : 21;
    Vector<T> size = absolute_value<T>(x), t = size > T(1) ? T(1) / size : size;
    Vector<T> u = t > EIGHTH ? (t - 1) / (t + 1) : t, square = u * u, series = broadcast(T(1) / (2 * TERMS_OF_SERIES + 1));
    for (int n = TERMS_OF_SERIES - 1; n >= 0; n--) series = multiply_add(-series, square, broadcast(T(1) / (2 * n + 1)));
    Vector<T> result = multiply_add(series, u, t > EIGHTH ? broadcast(QUARTER) : Vector<T>{});
    result = size > T(1) ? 2 * QUARTER - result : result;
    return x < T(0) ? -result : result;
}

// erf x by its series up to 1; beyond, 1 - e^(-x^2) p(2 / (2 + x)), with a polynomial that interpolates erfc x e^(x^2) at Chebyshev nodes
// from 1 to 6, where erf is 1 (errors below 3e-10 and 1e-18).
template <class T>
OVERT_APART Vector<T> error_function(Vector<T> x) {
    constexpr T FAR = 6, MIDDLE = 11.0 / 24, HALF = 5.0 / 24, PER_ROOT_PI = 1.12837916709551257390;
    constexpr int TERMS_OF_SERIES = sizeof(T) == 4 ? 11 : 19;
    Vector<T> size = absolute_value<T>(x), square = x * x, series = Vector<T>{};
    double factorial = 1;
    T coefficients[TERMS_OF_SERIES + 1];
    for (int n = 0; n <= TERMS_OF_SERIES; factorial *= -++n) coefficients[n] = static_cast<T>(1 / (factorial * (2 * n + 1)));
    for (int n = TERMS_OF_SERIES; n >= 0; n--) series = multiply_add(series, square, broadcast(coefficients[n]));
    static constexpr double SINGLE[] = {1.846432275e-6, -7.015935924e-6, -8.071032505e-5, 0.0001969368476,
                                        0.005588800011, 0.03856061085, 0.1618935685, 0.221429539},
                            TWICE[] = {-9.36945603286959368e-13, 4.77577611078218785e-13, 2.21357366149337519e-11, -7.46871181805068482e-11,
                                       -2.68698518348557978e-10, 2.62500749229714298e-9, -5.88605329922160148e-10, -7.0053717937367913e-8,
                                       1.63499373834058035e-7, 1.9795619759276002e-6, -7.34051793828799831e-6, -0.0000807922042879662996,
                                       0.000197139177727958844, 0.00558881628184140271, 0.0385605704251824251, 0.161893568041024945,
                                       0.221429540229931806};
    Vector<T> bounded = lane_min(broadcast(FAR), size), place = (T(2) / (T(2) + bounded) - MIDDLE) * (1 / HALF);
    Vector<T> scaled = sizeof(T) == 4 ? polynomial<T>(SINGLE, place) : polynomial<T>(TWICE, place);
    Vector<T> far = 1 - exponential<T>(-bounded * bounded) * scaled;
    return size < T(1) ? series * x * PER_ROOT_PI : x < T(0) ? -far : far;
}

}  // namespace overt::OVERT_LEVEL
