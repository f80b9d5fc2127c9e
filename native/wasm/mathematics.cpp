// The functions of the C library that the kernels call.
#include "attention/programs/functions.hpp"

namespace overt::OVERT_LEVEL {
namespace {

double exponential_of(double x) { return exponential<double>(broadcast(x))[0]; }

// ln x for x = m · 2^e with m between √½ and √2: e ln 2 + 2 artanh((m − 1) / (m + 1)), the series to its 21st power.
double logarithm_of(double x) {
    if (!(x > 0)) return x == 0 ? -__builtin_inf() : __builtin_nan("");
    if (x == __builtin_inf()) return x;
    int exponent = 0;
    if (x < 0x1p-1022) x *= 0x1p54, exponent = -54;
    std::uint64_t bits;
    __builtin_memcpy(&bits, &x, 8);
    exponent += static_cast<int>(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
    __builtin_memcpy(&x, &bits, 8);
    if (x > 1.41421356237309505) x /= 2, exponent++;
    double s = (x - 1) / (x + 1), square = s * s, series = 0;
    for (int power = 21; power > 0; power -= 2) series = series * square + 1.0 / power;
    return exponent * 0.69314718055994531 + 2 * s * series;
}

// Of float32 beyond the kernel's own range. There is none beyond a million: neighbours are too far apart for a sine that means something.
double sine_of(double x, bool cosine) {
    return x >= -1e6 && x <= 1e6 ? sine_or_cosine<double>(broadcast(x), cosine)[0] : __builtin_nan("");
}

}  // namespace
}  // namespace overt::OVERT_LEVEL

extern "C" double exp(double x) { return overt::OVERT_LEVEL::exponential_of(x); }
extern "C" double log(double x) { return overt::OVERT_LEVEL::logarithm_of(x); }
extern "C" double sin(double x) { return overt::OVERT_LEVEL::sine_of(x, false); }
extern "C" double cos(double x) { return overt::OVERT_LEVEL::sine_of(x, true); }
