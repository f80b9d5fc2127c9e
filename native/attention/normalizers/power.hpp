// Powers of scores' distances above a threshold, for entmax.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// log(1 + f) for f from sqrt(1/2) - 1 to sqrt(2) - 1, to about one unit in the last place.
OVERT_INLINE Vector<float> small_logarithm(Vector<float> f) {  // Cephes
    // Evaluated in pairs, so that fewer operations wait for each other.
    Vector<float> square = f * f, fourth = square * square;
    Vector<float> highest = multiply_add(broadcast(7.0376836292e-2f), f, broadcast(-1.1514610310e-1f));
    Vector<float> high = multiply_add(broadcast(1.1676998740e-1f), f, broadcast(-1.2420140846e-1f));
    Vector<float> middle = multiply_add(broadcast(1.4249322787e-1f), f, broadcast(-1.6668057665e-1f));
    Vector<float> low = multiply_add(broadcast(2.0000714765e-1f), f, broadcast(-2.4999993993e-1f));
    Vector<float> lowest = multiply_add(broadcast(3.3333331174e-1f), f, broadcast(-0.5f));
    high = multiply_add(highest, square, high), low = multiply_add(middle, square, low);
    return multiply_add(multiply_add(multiply_add(high, fourth, low), square, lowest), square, f);
}
OVERT_INLINE Vector<double> small_logarithm(Vector<double> f) {  // fdlibm
    Vector<double> s = f / (2 + f), z = s * s, p = broadcast(1.479819860511658591e-01);
    p = multiply_add(p, z, broadcast(1.531383769920937332e-01));
    p = multiply_add(p, z, broadcast(1.818357216161805012e-01));
    p = multiply_add(p, z, broadcast(2.222219843214978396e-01));
    p = multiply_add(p, z, broadcast(2.857142874366239149e-01));
    p = multiply_add(p, z, broadcast(3.999999999940941908e-01));
    p = multiply_add(p, z, broadcast(6.666666666666735130e-01));
    Vector<double> half = f * f * 0.5;
    return f - (half - s * (half + p * z));
}

// log2 x for positive normal numbers.
template <class T>
OVERT_INLINE Vector<T> binary_logarithm(Vector<T> x) {
    using E = Exponential<T>;
    using Number = typename Lanes<T>::Number;
    constexpr Number LEAST = sizeof(T) == 4 ? Number(0x3f3504f3) : Number(0x3fe6a09e667f3bcdll);  // the bits of sqrt(1/2)
    Whole<T> above = ((Whole<T>)x - LEAST) >> E::SHIFT;
    Vector<T> mantissa = (Vector<T>)((Whole<T>)x - (above << E::SHIFT));
    return multiply_add(small_logarithm(mantissa - 1), broadcast(T(E::LOG2E)), __builtin_convertvector(above, Vector<T>));
}

// d^(p - 1) for d >= 0; one more product gives d^p. p is 1, 2, an integer or any number above 1. NaN stays NaN, 0 stays 0.
struct First {
    template <class T>
    OVERT_INLINE Vector<T> lower(Vector<T> d, T) {
        return d > T(0) ? broadcast(T(1)) : d;
    }
};
struct Second {
    template <class T>
    OVERT_INLINE Vector<T> lower(Vector<T> d, T) {
        return d;
    }
};
struct WholePower {
    static constexpr int MOST = 24;  // more products take longer than a logarithm and a power
    template <class T>
    OVERT_INLINE Vector<T> lower(Vector<T> d, T exponent) {
        Vector<T> result = d;
        for (int i = static_cast<int>(exponent + T(0.5)); i > 1; i--) result *= d;
        return result;
    }
};
struct AnyPower {
    template <class T>
    OVERT_INLINE Vector<T> lower(Vector<T> d, T exponent) {
        return d > T(0) ? power_of_two<T>(binary_logarithm<T>(d) * exponent) : d;
    }
};

// Whether p is an integer above 2, up to the rounding of alpha.
static inline bool is_whole(double p) {
    double whole = __builtin_floor(p + 0.5);
    return whole > 2 && whole <= WholePower::MOST && __builtin_fabs(p - whole) < 1e-14 * p;
}

// work(power) with the class that computes p = 1 / (alpha - 1).
template <class Work>
static inline void with_power(double p, Work work) {
    if (p == 1)
        work(First());
    else if (p == 2)
        work(Second());
    else if (is_whole(p))
        work(WholePower());
    else
        work(AnyPower());
}

}  // namespace overt::OVERT_LEVEL
