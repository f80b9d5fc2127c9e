// Loops that do nothing but multiply and add, or divide, on registers alone: at this level no kernel can do more of either.
#include "level.hpp"
#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

// Chains that do not wait for each other: enough to fill two units of five cycles, and few enough for sixteen registers.
constexpr int CHAINS = 12;

// Read anew at every call, so that the compiler cannot work the loops out beforehand.
static const volatile float ONE = 1.0f, HALF = 0.5f;
static volatile float result;

template <class Next>
static Index run(Index rounds, Next next) {
    Vector<float> chains[CHAINS];
    for (int c = 0; c < CHAINS; c++) chains[c] = every<float>(ONE + static_cast<float>(c));
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
    Vector<float> half = every<float>(HALF);
    return run(rounds, [half](Vector<float> x) { return fused(x, half, half); });
}

Index divisions(Index rounds) {
    Vector<float> one = every<float>(ONE);
    return run(rounds, [one](Vector<float> x) { return one / x; });
}

}  // namespace overt::OVERT_LEVEL
