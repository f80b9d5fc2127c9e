// Loops of multiply-adds, or of divisions, on registers only: no kernel of this level can compute more of either.
#include "level.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// CHAINS: independent chains, enough to fill two units of five cycles of latency, and few enough for sixteen registers.
constexpr int CHAINS = 12;

// Volatile, so that the compiler cannot compute the loops beforehand.
static const volatile float ONE = 1.0f, HALF = 0.5f;
static volatile float result;

template <class Next>
static Index run(Index rounds, Next next) {
    Vector<float> chains[CHAINS];
    for (int c = 0; c < CHAINS; c++) chains[c] = broadcast<float>(ONE + static_cast<float>(c));
    for (Index round = 0; round < rounds; round++) {
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++) chains[c] = next(chains[c]);
    }
    Vector<float> total = {};
    for (int c = 0; c < CHAINS; c++) total += chains[c];
    result = sum<float>(total);
    return rounds * CHAINS * WIDTH<float>;
}

Index multiply_adds(Index rounds) {
    Vector<float> half = broadcast<float>(HALF);
    return run(rounds, [half](Vector<float> x) { return multiply_add(x, half, half); });
}

Index divisions(Index rounds) {
    Vector<float> one = broadcast<float>(ONE);
    return run(rounds, [one](Vector<float> x) { return one / x; });
}

}  // namespace overt::OVERT_LEVEL
