// The empirical Wiener filter in cosines of overlapping windows, see overt/smoothing/selection/bank/wiener.py. Each lane of a vector holds
// one window, so that a transform of one is the transform of all.
#include <algorithm>

#include "level.hpp"
#include "simd/parallel.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr int LANES = WIDTH<double>;
using Lane = Vector<double>;
// PART: points of the output that a thread processes at a time. Windows over an edge between two parts are filtered for both.
constexpr Index PART = 16384;
constexpr Index LONGEST = 1024;
constexpr double TINY = 2.2250738585072014e-308;

// y_k = sum_i x_i cos(pi k (i + 1/2) / N), in place, by two transforms of half the length (Lee 1984). The factors are
// 1 / (2 cos(pi (i + 1/2) / N)) for N, followed by those for N / 2, N / 4, ...
template <int N>
void cosine_transform(Lane* __restrict x, Lane* __restrict workspace, const double* factors) {
    if constexpr (N > 1) {
        constexpr int HALF = N / 2;
        for (int i = 0; i < HALF; i++) {
            workspace[i] = x[i] + x[N - 1 - i];
            workspace[HALF + i] = (x[i] - x[N - 1 - i]) * broadcast(factors[i]);
        }
        cosine_transform<HALF>(workspace, x, factors + HALF);
        cosine_transform<HALF>(workspace + HALF, x, factors + HALF);
        for (int i = 0; i < HALF - 1; i++) {
            x[2 * i] = workspace[i];
            x[2 * i + 1] = workspace[HALF + i] + workspace[HALF + i + 1];
        }
        x[N - 2] = workspace[HALF - 1];
        x[N - 1] = workspace[N - 1];
    }
}

// Its transpose: x_i = sum_k y_k cos(pi k (i + 1/2) / N), in place.
template <int N>
void cosine_sums(Lane* __restrict y, Lane* __restrict workspace, const double* factors) {
    if constexpr (N > 1) {
        constexpr int HALF = N / 2;
        workspace[0] = y[0];
        workspace[HALF] = y[1];
        for (int k = 1; k < HALF; k++) {
            workspace[k] = y[2 * k];
            workspace[HALF + k] = y[2 * k - 1] + y[2 * k + 1];
        }
        cosine_sums<HALF>(workspace, y, factors + HALF);
        cosine_sums<HALF>(workspace + HALF, y, factors + HALF);
        for (int i = 0; i < HALF; i++) {
            Lane odd = workspace[HALF + i] * broadcast(factors[i]);
            y[i] = workspace[i] + odd;
            y[N - 1 - i] = workspace[i] - odd;
        }
    }
}

// The windows that are filtered together, and where each begins.
struct Windows {
    Index starts[LANES];
    int count;
};

struct Memory {
    Lane noisy[LONGEST];   // the series, its cosines, and at last the filtered values
    Lane smooth[LONGEST];  // the pilot, its cosines, and what they count in leverages
    Lane levels[LONGEST];  // the variance of white noise in each cosine
    Lane leverages[LONGEST / 2];  // of the first half: those of the second mirror them
    Lane workspace[LONGEST];
    double totals[PART];
};

void gather(const double* column, const Windows& windows, Index length, Lane* to) {
    for (Index i = 0; i < length; i++)
        for (int w = 0; w < LANES; w++) to[i][w] = column[windows.starts[w] + i];
}

// sum_i c_ki^2 squares_i, where c_ki^2 is (1 + cos(2 pi k (i + 1/2) / N)) / N: the second half of the points, and of k, mirrors the first.
template <int N>
void gather_levels(const Wiener& task, const Windows& windows, Memory& memory) {
    if (task.alike) {
        for (int k = 0; k < N; k++) memory.levels[k] = broadcast(task.squares[0]);
        return;
    }
    Lane* sums = memory.leverages;
    gather(task.squares, windows, N, memory.levels);
    for (int i = 0; i < N / 2; i++) sums[i] = memory.levels[i] + memory.levels[N - 1 - i];
    cosine_transform<N / 2>(sums, memory.workspace, task.factors + N / 2);
    for (int k = 1; k < N / 2; k++) {
        memory.levels[k] = (sums[0] + sums[k]) * (1.0 / N);
        memory.levels[N - k] = (sums[0] - sums[k]) * (1.0 / N);
    }
    memory.levels[N / 2] = sums[0] * (1.0 / N);
}

// Multiplies the cosines of the series by their gains, and those of the pilot become gains with their slopes. Returns the windows' risks.
template <int N>
Lane apply_gains(const Wiener& task, Memory& memory) {
    Lane risks{};
    memory.noisy[0] *= 1.0 / N;
    for (int k = 1; k < N; k++) {
        Lane noisy = memory.noisy[k], smooth = memory.smooth[k], spectrum = broadcast(task.spectrum[k - 1]);
        Lane noise = multiply_add(memory.levels[k], spectrum, broadcast(TINY)), power = smooth * smooth * (2.0 / N);
        Lane signal = lane_max(power - noise * power / (power + noise), Lane{}), inverse = 1 / (signal + noise);
        Lane gains = signal * inverse;
        Lane slopes = (4.0 / N) * smooth * noisy * noise * inverse * inverse * square_root(gains);
        memory.noisy[k] = gains * noisy * (2.0 / N);
        memory.smooth[k] = (gains + slopes) * spectrum;
        risks = multiply_add(gains, spectrum, risks);
    }
    return risks;
}

// sum_k c_ki^2 of the pilot's gains after apply_gains.
template <int N>
void sum_leverages(const Wiener& task, Memory& memory) {
    Lane total = memory.smooth[N / 2];
    for (int k = 1; k < N / 2; k++) {
        total += memory.smooth[k] + memory.smooth[N - k];
        memory.leverages[k] = (memory.smooth[k] - memory.smooth[N - k]) * (1.0 / N);
    }
    memory.leverages[0] = total * (1.0 / N);
    cosine_sums<N / 2>(memory.leverages, memory.workspace, task.factors + N / 2);
}

// Adds the windows, one after the other, to the points first <= i < stop.
template <int N>
void add_windows(const Wiener& task, const Windows& windows, Lane weights, Index first, Index stop, Memory& memory) {
    for (int w = 0; w < windows.count; w++) {
        Index start = windows.starts[w], from = max_of<Index>(first - start, 0), end = min_of<Index>(stop - start, N);
        for (Index i = from; i < end; i++) {
            double weight = weights[w] * task.taper[i];
            Index half = i < N / 2 ? i : N - 1 - i, point = start + i;
            task.values_to[point] = multiply_add(weight, memory.noisy[i][w], task.values_to[point]);
            double leverage = memory.leverages[half][w] + task.mean_leverages[i];
            task.leverages_to[point] = multiply_add(weight, leverage, task.leverages_to[point]);
            memory.totals[point - first] += weight;
        }
    }
}

template <int N>
void filter_part(const Wiener& task, Index first, Index stop, Memory& memory) {
    for (Index i = first; i < stop; i++) task.values_to[i] = task.leverages_to[i] = memory.totals[i - first] = 0;
    // The windows that begin after first - N and before stop.
    const Index *window = std::upper_bound(task.starts, task.starts + task.windows, first - N),
                *end = std::lower_bound(window, task.starts + task.windows, stop);
    while (window < end) {
        Windows windows{};
        windows.count = static_cast<int>(min_of<Index>(LANES, end - window));
        for (int w = 0; w < LANES; w++) windows.starts[w] = window[min_of(w, windows.count - 1)];
        window += windows.count;
        gather(task.values, windows, N, memory.noisy);
        gather(task.pilot, windows, N, memory.smooth);
        gather_levels<N>(task, windows, memory);
        cosine_transform<N>(memory.noisy, memory.workspace, task.factors);
        cosine_transform<N>(memory.smooth, memory.workspace, task.factors);
        Lane weights = exponential<double>(-0.5 * apply_gains<N>(task, memory));
        sum_leverages<N>(task, memory);
        cosine_sums<N>(memory.noisy, memory.workspace, task.factors);
        add_windows<N>(task, windows, weights, first, stop, memory);
    }
    for (Index i = first; i < stop; i++) {
        double share = 1 / memory.totals[i - first];
        task.values_to[i] *= share;
        task.leverages_to[i] *= share;
    }
}

template <int N>
void filter_by_length(const Wiener& task) {
    if constexpr (N <= LONGEST) {
        if (task.length != N) return filter_by_length<2 * N>(task);
        Index parts = (task.count + PART - 1) / PART;
        int threads = static_cast<int>(min_of<Index>(task.threads, parts));
        Scratch<Memory> memory(threads);
        share_items(parts, 1, threads, [&](Index part, int thread) {
            filter_part<N>(task, part * PART, min_of((part + 1) * PART, task.count), memory.data[thread]);
        });
    }
}

}  // namespace

void wiener(const Wiener& task) { filter_by_length<16>(task); }

}  // namespace overt::OVERT_LEVEL
