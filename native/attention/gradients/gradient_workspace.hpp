// The working memory of a thread in the backward pass, and the data of a chunk of rows that all threads share.
#pragma once

#include "attention/tiles/softmax.hpp"
#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// CHUNK: query rows with sums in memory at once; each thread has its own sums.
constexpr Index CHUNK = 32 * ROWS;
// KEY_GROUP: keys with terms in memory at once, if the features fit into the nearest cache.
constexpr int KEY_GROUP = 8;

// Threads share enough entries to give each of them some work; only one entry if entries may share elements of the bias.
static inline Index entries_at_once(const Team& team, const void* d_bias) {
    if (team.entry_groups > 1) return team.entry_groups;
    return d_bias ? 1 : max_of<Index>(1, min_of<Index>(team.entries, team.threads));
}

// Spans of each entry's keys: four for each thread, so that no thread waits long for the last one; one per thread if there is one entry.
// If spans would differ much in their number of tiles, each is one tile.
static inline Index spans_at_once(const Team& team, Index at_once, Index tiles) {
    if (team.entry_groups > 1) return 1;
    Index wanted = at_once == 1 ? team.threads : count(4 * team.threads, at_once);
    return max_of<Index>(1, wanted > 1 && tiles < 2 * wanted ? tiles : wanted);
}

// Whether tiles of half the keys occupy more threads.
static inline bool few_tiles(const Inputs& inputs, const Team& team, Index at_once) {
    return team.size > 1 && at_once * count(inputs.keys, KEYS) < 3 * team.threads;
}

// The number of keys in a tile. A single block of queries reads each key once: the tile is then so small that its packed rows and their
// sums stay in a near cache.
template <class T>
static int keys_of_tile(const Inputs& inputs, const Team& team, Index at_once) {
    constexpr Index NEAR = 64 * 1024;
    Index bytes = (inputs.head_dim + 1) * static_cast<Index>(sizeof(T));
    if (inputs.queries > ROWS) return few_tiles(inputs, team, at_once) ? KEYS / 2 : KEYS;
    return static_cast<int>(min_of<Index>(KEYS, max_of<Index>(KEY_GROUP, NEAR / bytes / KEY_GROUP * KEY_GROUP)));
}

// One thread's working memory.
template <class T>
struct GradientWorkspace {
    // padded_dim and padded_value_dim are the features and the value columns in whole vectors.
    T *keys, *values, *d_keys, *d_values, *d_weights, *scores, *weights, *biases, *dropout_factors, *saved_terms;
    std::uint8_t* allowed;

    static Index size(Index key_size, Index padded_dim, Index padded_value_dim) {
        return padded<T>(padded<T>(key_size) + 2 * KEYS * padded_value_dim + KEYS * padded_dim + padded_dim + 5 * ROWS * KEYS +
                         KEY_GROUP * padded_dim) +
               64;
    }
    GradientWorkspace(T* memory, Index key_size, Index padded_dim, Index padded_value_dim)
        : keys(memory),
          values(keys + padded<T>(key_size)),
          d_keys(values + padded_value_dim * KEYS),
          d_values(d_keys + KEYS * padded_dim),
          d_weights(d_values + KEYS * padded_value_dim),
          scores(d_weights + padded_dim),
          weights(scores + ROWS * KEYS),
          biases(weights + ROWS * KEYS),
          dropout_factors(biases + ROWS * KEYS),
          saved_terms(dropout_factors + ROWS * KEYS),
          allowed(reinterpret_cast<std::uint8_t*>(saved_terms + KEY_GROUP * padded_dim)) {}
};

template <int N>
struct Size {
    static constexpr int COUNT = N;
};

// work(size, keys): these keys as one group if kernels are compiled for its size, else one by one.
template <class Work>
static inline void in_groups(const int* which, int count, Work work) {
    if (count == KEY_GROUP)
        work(Size<KEY_GROUP>(), which);
    else if (count == KEY_GROUP / 2)
        work(Size<KEY_GROUP / 2>(), which);
    else if (count == KEY_GROUP / 4)
        work(Size<KEY_GROUP / 4>(), which);
    else
        for (int n = 0; n < count; n++) work(Size<1>(), which + n);
}

// sums += weights^T rows, pair by pair, skipping weights of 0, since 0 * NaN is NaN.
template <class T>
static inline void add_weighted_rows(const T* weights, const T* rows, int row_count, int keys, Index width, T* sums) {
    for (int r = 0; r < row_count; r++)
        for (int c = 0; c < keys; c++) {
            T weight = weights[r * KEYS + c];
            for (Index e = 0; weight != 0 && e < width; e++) sums[c * width + e] += weight * rows[r * width + e];
        }
}

// d_values += weights^T upstream; pair by pair if a row's upstream is not finite, since 0 * NaN is NaN.
template <class T>
static void add_values(const Tile& at, const T* upstream, Index padded_value_dim, const GradientWorkspace<T>& workspace) {
    if (all_finite(upstream, padded_value_dim, at.rows, padded_value_dim)) {
        multiply(workspace.weights, Index{1}, Index{KEYS}, upstream, padded_value_dim, workspace.d_values, padded_value_dim, at.keys,
                 at.rows, static_cast<int>(padded_value_dim), true);
        return;
    }
    add_weighted_rows(workspace.weights, upstream, at.rows, at.keys, padded_value_dim, workspace.d_values);
}

// Computed for a chunk of rows before its keys are read: packed queries, upstream gradients in whole vectors, sums, and the
// factors of weight = e^(t - base) * inverse_sum.
template <class T>
struct Chunk {
    Index first, rows;
    T *queries, *upstream, *d_queries, *bases, *inverse_sums;

    // Within a slot's memory, for at most `chunk` rows; `sums` is the amount of numbers of a row's gradients in all spans.
    Chunk(Index first, Index rows, T* memory, Index chunk, Index query_size, Index padded_value_dim, Index sums)
        : first(first), rows(rows), queries(memory), upstream(queries + chunk * query_size),
          d_queries(upstream + chunk * padded_value_dim), bases(d_queries + chunk * sums), inverse_sums(bases + chunk) {}
};

// The total scores of a row and N keys, with space for a whole vector after them.
template <class T, int N>
struct Totals {
    T of[N + WIDTH<T>] = {};
};

// LARGE: a log-sum-exp of this size has lost digits that a weight needs, and the forward pass rounds its scores differently.
template <class T>
constexpr T LARGE = sizeof(T) == 4 ? 64 : 4096;

template <class T>
static inline bool is_large(T log_sum_exp) {
    return (log_sum_exp > LARGE<T> || log_sum_exp < -LARGE<T>) && log_sum_exp - log_sum_exp == 0;
}

// The sums of such a row: e^(t - base), and e^(t - base) times the gradient of each weight.
template <class T>
struct RecomputedSums {
    bool needed;
    T base = -__builtin_inf(), total = 0, delta = 0;

    void join(T score, T gradient) {
        if (score == -__builtin_inf()) return;
        T now = max_of(score, base), rescaling = exponential_of(base - now), exponentiated = exponential_of(score - now);
        base = now, total = total * rescaling + exponentiated, delta = delta * rescaling + exponentiated * gradient;
    }
};

}  // namespace overt::OVERT_LEVEL
