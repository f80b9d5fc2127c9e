// The keys that may have a weight under entmax, and the threshold tau that their weights need: no row is sorted.
//
// In units of (alpha - 1) times the score, weights are (z - tau)^p above tau, with p = 1 / (alpha - 1), and tau is at least the row's largest
// z minus 1. So a row has a bound: keys at or below it have no weight, whatever keys follow. Each vector of queries lists the keys that
// exceed the bound of any of them. Newton's method on the p-norm of z - tau, which is convex and nearly linear in tau, approaches tau from
// below and so improves the bound; for p = 1 it is Michelot's algorithm.
#pragma once

#include <type_traits>

#include "attention/normalizers/power.hpp"
#include "attention/normalizers/gathered.hpp"

namespace overt::OVERT_LEVEL {

// A bit mask: lanes in which a <= b is false, NaN included.
template <class T>
static inline unsigned lanes_not_at_most(Vector<T> a, Vector<T> b) {
    Whole<T> at_most = a <= b;
    unsigned bits = 0;
    for (int i = 0; i < WIDTH<T>; i++) bits |= (~at_most[i] & 1u) << i;
    return bits;
}
#if defined(__AVX512F__) && OVERT_BYTES == 64
template <>
inline unsigned lanes_not_at_most<float>(Vector<float> a, Vector<float> b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
template <>
inline unsigned lanes_not_at_most<double>(Vector<double> a, Vector<double> b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ); }
#elif defined(__AVX2__) && OVERT_BYTES == 32
template <>
inline unsigned lanes_not_at_most<float>(Vector<float> a, Vector<float> b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLE_UQ));
}
template <>
inline unsigned lanes_not_at_most<double>(Vector<double> a, Vector<double> b) {
    return _mm256_movemask_pd(_mm256_cmp_pd(a, b, _CMP_NLE_UQ));
}
#elif defined(__SSE2__) && OVERT_BYTES == 16
template <>
inline unsigned lanes_not_at_most<float>(Vector<float> a, Vector<float> b) { return _mm_movemask_ps(_mm_cmpnle_ps(a, b)); }
template <>
inline unsigned lanes_not_at_most<double>(Vector<double> a, Vector<double> b) { return _mm_movemask_pd(_mm_cmpnle_pd(a, b)); }
#endif

// The list of one vector of queries: `count` vectors of z and their keys.
template <class T>
struct SupportList {
    T* scores;
    std::int32_t* keys;
    int count;
    int searches;  // for keys to drop, so far
    bool dense;    // the last search dropped few keys, as under near-equal scores: further searches are not worth their time
};

// The sums over a list for a given tau: of (z - tau)^p and of (z - tau)^(p - 1).
template <class T>
struct PowerSums {
    Vector<T> total, lower;
};

// The lists of a block of queries. `largest` is each row's largest z so far; `bound` is relative to it, from -1 to 0, infinite if there
// is no query.
template <class T>
class SupportLists {
    static constexpr int W = WIDTH<T>, LISTS = QUERIES / W;
    static constexpr T NEVER = -__builtin_inf(), ALWAYS = __builtin_inf();

   public:
    T *largest, *bound;
    SupportList<T> lists[LISTS];

    // As many vectors as keys, and a few more: lists then begin at different cache offsets. Memory that is not written is not used.
    static Index capacity(Index keys) { return keys + 5; }
    static Index size(Index keys) { return 2 * QUERIES + capacity(keys) * (QUERIES + LISTS) + W; }

    SupportLists(T* memory, Index keys) : largest(memory), bound(largest + QUERIES) {
        T* scores = bound + QUERIES;
        std::int32_t* numbers = reinterpret_cast<std::int32_t*>(scores + QUERIES * capacity(keys));
        for (int i = 0; i < LISTS; i++)
            lists[i] = {scores + i * capacity(keys) * W, numbers + i * capacity(keys), 0, 0, false};
    }

    void clear(int rows) {
        for (int r = 0; r < QUERIES; r++) largest[r] = NEVER, bound[r] = r < rows ? T(-1) : ALWAYS;
        for (SupportList<T>& list : lists) list.count = list.searches = 0, list.dense = false;
    }

    // The value subtracted from z: 0 in a row without keys, so that -inf stays -inf.
    Vector<T> base(int lane) const {
        Vector<T> highest = load(largest + lane);
        return highest == NEVER ? Vector<T>{} : highest;
    }

    // Adds the keys of a tile that exceed a bound, or with `every` all of them.
    void append(const T* scores, const Tile& at, int skipped, bool every) {
        for (int r = 0; r < at.rows; r += W) raise(scores + r, at.keys, skipped + r), append_known(scores + r, at, skipped + r, every);
    }

    // The same with `largest` and `bound` already known.
    void append_known(const T* scores, const Tile& at, int lane, bool every) {
        SupportList<T>& list = lists[lane / W];
        Vector<T> from = base(lane), least = load(bound + lane);
        T* to = list.scores + Index{list.count} * W;
        std::int32_t *numbers = list.keys + list.count, key = static_cast<std::int32_t>(at.key);
        for (int c = 0; c < at.keys; c++) {
            Vector<T> z = load(scores + c * QUERIES);
            store(to, z), *numbers = key + c;
            int more = every | (lanes_not_at_most<T>(z - from, least) != 0);
            to += more * W, numbers += more;
        }
        list.count = static_cast<int>(numbers - list.keys);
    }

    // A step towards a lower bound of tau, while keys arrive. A larger power than p has a lower tau, and an integer power is fast.
    template <class Power>
    void approach(int lane, T power) {
        if (lists[lane / W].dense) return;
        if constexpr (!std::is_same_v<Power, AnyPower>)
            improve<Power>(lane, power, true);
        else if (power < 2)
            improve<Second>(lane, T(2), true);
        else if (power < WholePower::MOST)
            improve<WholePower>(lane, static_cast<T>(static_cast<int>(power) + 1), true);
        else
            improve<Power>(lane, power, true);
    }

    // One step of Newton's method. With `drop`, the list keeps only keys above the previous bound. Returns the step.
    template <class Power>
    Vector<T> improve(int lane, T power, bool drop) {
        constexpr int SPARSE = 4;  // a list is dense if it drops fewer than one key in SPARSE
        Vector<T> tau = load(bound + lane);
        SupportList<T>& list = lists[lane / W];
        int before = list.count;
        drop = drop && !list.dense;
        PowerSums<T> sums = drop ? sum<Power, true>(lane, tau, power) : sum<Power, false>(lane, tau, power);
        // The first search uses the bound by which the keys were listed.
        list.dense = list.dense || (drop && list.searches > 0 && list.count > before - before / SPARSE);
        list.searches += drop;
        // The sum is below 1 only by rounding, or in a row without keys.
        Vector<T> step = sums.total / sums.lower * (1 - 1 / root(Power(), sums.total, power));
        step = sums.total > T(0) ? step : Vector<T>{};
        store(bound + lane, tau + step);
        return step;
    }

    // Steps until the next one would be below the rounding of z - tau.
    template <class Power>
    void find_threshold(int lane, T power, bool drop) {
        constexpr T SMALL = sizeof(T) == 4 ? T(0x1p-20) : T(0x1p-48);
        constexpr int MOST = 60;
        Vector<T> before{};
        for (int i = 0; std::is_same_v<Power, AnyPower> && drop && i < 2; i++) approach<Power>(lane, power);
        for (int i = 0; i < MOST; i++) {
            Vector<T> step = improve<Power>(lane, power, drop && i < 2);
            // If p is below 2 the slope jumps as keys leave, and steps are as large as their error; otherwise errors are squared.
            Vector<T> next = i == 0 || power < 2 ? step : step * step * step / (before * before);
            next = step == T(0) ? step : next;
            if (!lanes_above<T>(next, lane_max(load(bound + lane) * -SMALL, Vector<T>{}))) return;
            before = step;
        }
    }

    // z of a list become weights (z - tau)^p in place, if any is positive; with `every`, of all keys, -1 for masked pairs. `lower` may be
    // nullptr, else it gets (z - tau)^(p - 1).
    template <class Power>
    PowerSums<T> weigh(int lane, T power, bool every, T* lower) {
        SupportList<T>& list = lists[lane / W];
        Vector<T> from = base(lane), tau = load(bound + lane);
        PowerSums<T> sums{};
        int kept = 0;
        for (int n = 0; n < list.count; n++) {
            Vector<T> z = load(list.scores + n * W), above = lane_max(Vector<T>{}, z - from - tau);
            Vector<T> power_below = Power::template lower<T>(above, power - 1), weight = power_below * above;
            sums.total += weight, sums.lower += power_below;
            store(list.scores + kept * W, every ? (z == NEVER ? broadcast(T(-1)) : weight) : weight);
            list.keys[kept] = list.keys[n];
            if (lower) store(lower + kept * W, power_below);
            kept += every | (lanes_not_at_most<T>(above, Vector<T>{}) != 0);
        }
        list.count = kept;
        return sums;
    }

   private:
    // The maxima of a tile, to which the bounds then refer.
    void raise(const T* scores, int keys, int lane) {
        Vector<T> before = load(largest + lane), now = before, other = before;
        int c = 0;
        for (; c + 2 <= keys; c += 2) {
            now = lane_max(load(scores + c * QUERIES), now);
            other = lane_max(load(scores + (c + 1) * QUERIES), other);
        }
        if (c < keys) now = lane_max(load(scores + c * QUERIES), now);
        now = lane_max(now, other);
        Vector<T> least = load(bound + lane), lowered = lane_max(broadcast(T(-1)), least - (now - before));
        store(bound + lane, now > before ? lowered : least);
        store(largest + lane, now);
    }

    static Vector<T> root(First, Vector<T> total, T) { return total; }
    static Vector<T> root(Second, Vector<T> total, T) { return square_root(total); }
    static Vector<T> root(WholePower, Vector<T> total, T power) { return root(AnyPower(), total, power); }
    static Vector<T> root(AnyPower, Vector<T> total, T power) {
        return power_of_two<T>(binary_logarithm<T>(total) * (1 / power));
    }

    template <class Power, bool DROP>
    PowerSums<T> sum(int lane, Vector<T> tau, T power) {
        SupportList<T>& list = lists[lane / W];
        Vector<T> from = base(lane), zeros{};
        PowerSums<T> sums{}, others{};
        int kept = 0, n = 0;
        auto add = [&](int at, PowerSums<T>& to) {
            Vector<T> z = load(list.scores + at * W), above = lane_max(zeros, z - from - tau);
            Vector<T> power_below = Power::template lower<T>(above, power - 1);
            to.total = multiply_add(power_below, above, to.total), to.lower += power_below;
            if (!DROP) return;
            store(list.scores + kept * W, z), list.keys[kept] = list.keys[at];
            kept += lanes_not_at_most<T>(above, zeros) != 0;
        };
        for (; n + 2 <= list.count; n += 2) add(n, sums), add(n + 1, others);
        if (n < list.count) add(n, sums);
        if (DROP) list.count = kept;
        return {sums.total + others.total, sums.lower + others.lower};
    }
};

}  // namespace overt::OVERT_LEVEL
