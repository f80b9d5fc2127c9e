// What a thread of the backward pass has on its desk, and what all threads know of the rows at hand.
#pragma once

#include "attention/softmax.hpp"

namespace overt::OVERT_LEVEL {

// Rows of queries whose sums are held at once, one set a thread.
constexpr Index CHUNK = 32 * ROWS;
// Keys whose terms are held at once, where they are few enough features for the nearest cache.
constexpr int HAND = 8;

// How many keys a tile takes. A lone block of queries meets each key once: then so few that their packed rows, and the sums that are
// written where they are read, stay in a near cache.
template <class T>
static int keys_of_tile(const Inputs& inputs) {
    constexpr Index NEAR = 64 * 1024;
    Index bytes = (inputs.features + 1) * static_cast<Index>(sizeof(T));
    return inputs.queries > ROWS ? KEYS : static_cast<int>(least<Index>(KEYS, most<Index>(HAND, NEAR / bytes / HAND * HAND)));
}

// One thread's working memory.
template <class T>
struct Desk {
    // Columns wide, or width, are those of features and values in whole vectors.
    T *keys, *values, *d_keys, *d_values, *d_weights, *scores, *weights, *biases, *keep, *kept;
    std::uint8_t* allowed;

    static Index room(Index key_room, Index wide, Index width) {
        return padded<T>(padded<T>(key_room) + 2 * KEYS * width + KEYS * wide + wide + 5 * ROWS * KEYS + HAND * wide) + 64;
    }
    Desk(T* memory, Index key_room, Index wide, Index width)
        : keys(memory),
          values(keys + padded<T>(key_room)),
          d_keys(values + width * KEYS),
          d_values(d_keys + KEYS * wide),
          d_weights(d_values + KEYS * width),
          scores(d_weights + wide),
          weights(scores + ROWS * KEYS),
          biases(weights + ROWS * KEYS),
          keep(biases + ROWS * KEYS),
          kept(keep + ROWS * KEYS),
          allowed(reinterpret_cast<std::uint8_t*>(kept + HAND * wide)) {}
};

// What is known of a chunk of rows before its keys come: packed queries, upstream gradients in whole vectors, its sums, and what makes
// weights of total scores: e^(t - base) * over.
template <class T>
struct Chunk {
    Index first, rows;
    T *queries, *upstream, *d_queries, *bases, *overs;
};

// A log-sum-exp of this size has lost digits that a weight needs, and the forward pass rounds its scores in another way.
template <class T>
constexpr T LARGE = sizeof(T) == 4 ? 64 : 4096;

// The sums of such a row: e^(t - base), and that times the gradient of each weight.
template <class T>
struct Anew {
    bool wanted;
    T base = -__builtin_inf(), total = 0, delta = 0;

    void join(T score, T gradient) {
        if (score == -__builtin_inf()) return;
        T now = most(score, base), shrunk = exponential_of(base - now), grown = exponential_of(score - now);
        base = now, total = total * shrunk + grown, delta = delta * shrunk + grown * gradient;
    }
};

}  // namespace overt::OVERT_LEVEL
