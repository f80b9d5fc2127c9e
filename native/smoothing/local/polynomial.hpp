// A polynomial from its normal equations, for a vector of targets at once: overt/smoothing/heads/local/polynomial.py has the rule.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

constexpr int MAX_POWERS = 5;  // 2 * degree + 1

using Many = Vector<double>;

// Sums over the keys of each target, by the power of u = (t_j - t_i) / h; k = exp(-u^2 / 2).
struct LocalSums {
    Many weights[MAX_POWERS];  // of w k
    Many values[3];            // of w k x
    Many squares[MAX_POWERS];  // of w k^2
    Many bare;                 // of k
};

struct LocalFit {
    Many value, self_coefficient, squares;
};

// The determinant of the matrix weights[p + q], its diagonal's product, and the cofactors of its first row.
static inline void local_cofactors(const Many* s, int degree, Many* determinant, Many* diagonal, Many* c) {
    if (degree == 0) {
        c[0] = broadcast(1.0), *determinant = *diagonal = s[0];
    } else if (degree == 1) {
        c[0] = s[2], c[1] = -s[1];
        *determinant = c[0] * s[0] + c[1] * s[1], *diagonal = s[0] * s[2];
    } else {
        c[0] = s[2] * s[4] - s[3] * s[3], c[1] = s[2] * s[3] - s[1] * s[4], c[2] = s[1] * s[3] - s[2] * s[2];
        *determinant = c[0] * s[0] + c[1] * s[1] + c[2] * s[2], *diagonal = s[0] * s[2] * s[4];
    }
}

static inline LocalFit local_fit(const LocalSums& sums, int max_degree) {
    constexpr double SINGULAR = 1e-3, ROUNDING = 1 + 1e-9;
    Many none = broadcast(__builtin_nan(""));
    LocalFit result{none, none, none};
    Whole<double> left = sums.weights[0] > 0.0;
    for (int degree = max_degree; degree >= 0; degree--) {
        Many c[3], determinant, diagonal, value{}, squares{};
        local_cofactors(sums.weights, degree, &determinant, &diagonal, c);
        for (int p = 0; p <= degree; p++) {
            c[p] = c[p] / determinant;
            value += c[p] * sums.values[p];
        }
        for (int p = 0; p <= degree; p++)
            for (int q = 0; q <= degree; q++) squares += c[p] * c[q] * sums.squares[p + q];
        Whole<double> takes = left & (diagonal > 0.0) & (determinant > SINGULAR * diagonal);
        if (degree > 0) takes &= squares * sums.weights[0] <= ROUNDING * sums.bare;
        if (degree == 2) takes &= sums.weights[2] > 0.0;
        result.value = takes ? value : result.value;
        result.self_coefficient = takes ? c[0] : result.self_coefficient;
        result.squares = takes ? squares : result.squares;
        left &= ~takes;
    }
    return result;
}

}  // namespace overt::OVERT_LEVEL
