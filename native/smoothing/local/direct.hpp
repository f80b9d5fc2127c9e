// Sums over the keys that a target reaches, one key after the other.
#pragma once

#include "smoothing/local/polynomial.hpp"
#include "smoothing/smoothing.hpp"

namespace overt::OVERT_LEVEL {

// The index of the first key that is not earlier than `time`, or, with `beyond`, later: by bisection, or by steps from a known lower bound.
static inline Index local_find(const Local& task, double time, bool beyond) {
    Index first = 0, length = task.count;
    while (length > 0) {
        Index half = length / 2;
        double at = task.times[first + half];
        bool before = at < time || (beyond && at == time);
        first = before ? first + half + 1 : first;
        length = before ? length - half - 1 : half;
    }
    return first;
}

static inline Index local_seek(const Local& task, Index key, double time, bool beyond) {
    while (key < task.count && (task.times[key] < time || (beyond && task.times[key] == time))) key++;
    return key;
}

// The keys first <= j < stop that a target reaches. For ascending targets both ends only increase.
struct Reach {
    Index first, here, after, stop;
    double nearest;  // distance to the nearest of them

    Reach(const Local& task, double target) {
        here = local_find(task, target, false), after = local_find(task, target, true);
        double far = radius(task, target);
        first = task.side == Side::future ? here : local_find(task, target - far, false);
        stop = max_of(first, task.side == Side::past ? after : local_find(task, target + far, true));
    }

    void move(const Local& task, double target) {
        here = local_seek(task, here, target, false), after = local_seek(task, after, target, true);
        double far = radius(task, target);
        first = task.side == Side::future ? here : local_seek(task, first, target - far, false);
        stop = max_of(first, task.side == Side::past ? after : local_seek(task, stop, target + far, true));
    }

    // Next to the nearest key's, a weight is negligible if d^2 > nearest^2 + (task.reach)^2.
    double radius(const Local& task, double target) {
        double to_past = after > 0 ? target - task.times[after - 1] : __builtin_inf();
        double to_future = here < task.count ? task.times[here] - target : __builtin_inf();
        nearest = task.side == Side::past ? to_past : task.side == Side::future ? to_future : min_of(to_past, to_future);
        if (task.raw) nearest = 0;
        // Plus a margin for rounding: far away, a last digit could exclude the nearest key itself.
        double rounding = 1e-15 * (__builtin_fabs(target) + nearest);
        return min_of(task.window, __builtin_sqrt(nearest * nearest + task.reach * task.reach) + rounding);
    }
};

// One vector of numbers, or of ones without numbers; zeros beyond the last.
static inline Many local_some(const double* numbers, Index from, Index stop) {
    if (from + WIDTH<double> <= stop) return numbers ? load(numbers + from) : broadcast(1.0);
    Many some{};
    for (Index i = from; i < stop; i++) some[i - from] = numbers ? numbers[i] : 1.0;
    return some;
}

// The same for times; the last one repeats beyond the end.
static inline Many local_times(const double* times, Index from, Index stop) {
    if (from + WIDTH<double> <= stop) return load(times + from);
    Many some = broadcast(times[stop - 1]);
    for (Index i = from; i < stop; i++) some[i - from] = times[i];
    return some;
}

template <int DEGREE>
static void local_direct(const Local& task, double target, const Reach& reach, LocalSums* sums, int lane) {
    constexpr int POWERS = 2 * DEGREE + 1;
    Many weights[POWERS] = {}, values[DEGREE + 1] = {}, squares[POWERS] = {}, bare{};
    Many lanes;
    for (int i = 0; i < WIDTH<double>; i++) lanes[i] = i;
    for (Index j = reach.first; j < reach.stop; j += WIDTH<double>) {
        Many away = local_times(task.times, j, reach.stop) - target, u = away * task.rate;
        // Before any product, so that the nearest key's own exponent is exactly 0, at any distance.
        Many k = exponential<double>((away - reach.nearest) * task.rate * -0.5 * ((away + reach.nearest) * task.rate));
        k = lanes < static_cast<double>(reach.stop - j) ? k : Many{};
        Many term = task.weights ? k * local_some(task.weights, j, reach.stop) : k;
        Many valued = term * local_some(task.values, j, reach.stop);
        bare += k;
        for (int p = 0; p < POWERS; p++) {
            weights[p] += term, squares[p] += term * k;
            if (p <= DEGREE) values[p] += valued, valued *= u;
            term *= u;
        }
    }
    for (int p = 0; p < POWERS; p++)
        sums->weights[p][lane] = sum<double>(weights[p]), sums->squares[p][lane] = sum<double>(squares[p]);
    for (int p = 0; p <= DEGREE; p++) sums->values[p][lane] = sum<double>(values[p]);
    sums->bare[lane] = sum<double>(bare);
}

static inline void local_direct(const Local& task, double target, const Reach& reach, LocalSums* sums, int lane) {
    if (task.degree == 0) return local_direct<0>(task, target, reach, sums, lane);
    if (task.degree == 1) return local_direct<1>(task, target, reach, sums, lane);
    local_direct<2>(task, target, reach, sums, lane);
}

}  // namespace overt::OVERT_LEVEL
