// A polynomial from the sums that determine it, for a vector of targets at once: overt/smoothing/fit.py has the rule.
#pragma once

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

constexpr int MOST_POWERS = 5;  // 2 * degree + 1

using Many = Vector<double>;

// Sums over the keys of each target, by the power of u = (t_j - t_i) / h; k = exp(-u^2 / 2).
struct LocalSums {
    Many weights[MOST_POWERS];  // of w k
    Many values[3];             // of w k x
    Many squares[MOST_POWERS];  // of w k^2
    Many bare;                  // of k
};

struct LocalFit {
    Many value, own, squares;
};

// The determinant of the matrix weights[p + q], its diagonal's product, and the cofactors of its first row.
static inline void local_cofactors(const Many* s, int degree, Many* determinant, Many* diagonal, Many* c) {
    if (degree == 0) {
        c[0] = every(1.0), *determinant = *diagonal = s[0];
    } else if (degree == 1) {
        c[0] = s[2], c[1] = -s[1];
        *determinant = c[0] * s[0] + c[1] * s[1], *diagonal = s[0] * s[2];
    } else {
        c[0] = s[2] * s[4] - s[3] * s[3], c[1] = s[2] * s[3] - s[1] * s[4], c[2] = s[1] * s[3] - s[2] * s[2];
        *determinant = c[0] * s[0] + c[1] * s[1] + c[2] * s[2], *diagonal = s[0] * s[2] * s[4];
    }
}

static inline LocalFit local_fit(const LocalSums& sums, int most_degree) {
    constexpr double SINGULAR = 1e-3, ROUNDING = 1 + 1e-9;
    Many none = every(__builtin_nan(""));
    LocalFit found{none, none, none};
    Whole<double> left = sums.weights[0] > 0.0;
    for (int degree = most_degree; degree >= 0; degree--) {
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
        found.value = takes ? value : found.value;
        found.own = takes ? c[0] : found.own;
        found.squares = takes ? squares : found.squares;
        left &= ~takes;
    }
    return found;
}

}  // namespace overt::OVERT_LEVEL
