#include "attention/pairs/units.hpp"

#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define OVERT_DECLARE_UNIT(level)                                                                           \
    namespace overt::level {                                                                                \
    void pair_dot(const Inputs&, const Score&, void* output, void* sums);                                   \
    void pair_dot_gradients(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);         \
    }                                                                                                       \
    static const overt::PairUnit UNIT_##level

#ifdef OVERT_HAS_amx
OVERT_DECLARE_UNIT(amx) = {"amx", overt::amx::pair_dot, overt::amx::pair_dot_gradients, nullptr};
#endif
#ifdef OVERT_HAS_avx512_bf16
namespace overt::avx512_bf16 {
void pair_decode(const Inputs&, const Score&, void* output, void* sums);
}
OVERT_DECLARE_UNIT(avx512_bf16) = {"avx512_bf16", overt::avx512_bf16::pair_dot, overt::avx512_bf16::pair_dot_gradients,
                                   overt::avx512_bf16::pair_decode};
#endif
OVERT_DECLARE_UNIT(amx_emulated) = {"amx-emulated", overt::amx_emulated::pair_dot, overt::amx_emulated::pair_dot_gradients, nullptr};

namespace overt {
namespace {

#if defined(__x86_64__)
struct Features {
    bool avx512 = false, avx512_bf16 = false, amx = false;
    Features() {
        __builtin_cpu_init();
        avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) avx512_bf16 = (a >> 5 & 1) && __builtin_cpu_supports("avx512vnni");
        if (avx512_bf16 && __get_cpuid_count(7, 0, &a, &b, &c, &d)) amx = (d >> 22 & 1) && (d >> 24 & 1) && system_permits_amx();
    }

    // The system saves the unit's 8 KB of registers only for processes that request it.
    static bool system_permits_amx() {
#if defined(__linux__)
        constexpr long REQUEST = 0x1023, TILE_DATA = 18;
        return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
        return false;
#endif
    }
};
#endif

struct AvailableUnits {
    const PairUnit* units[3];
    int count = 0;
    const PairUnit* best = nullptr;

    AvailableUnits() {
#if defined(__x86_64__)
        [[maybe_unused]] Features features;
#ifdef OVERT_HAS_amx
        if (features.amx) units[count++] = best = &UNIT_amx;
#endif
#ifdef OVERT_HAS_avx512_bf16
        if (features.avx512_bf16) {
            units[count++] = &UNIT_avx512_bf16;
            // One Sapphire Rapids core computes 64 GFLOP/s by vdpbf16ps, and 134 in float32; one Zen 4 core 233, and 116.
            if (!best && __builtin_cpu_is("amd")) best = &UNIT_avx512_bf16;
        }
#endif
#endif
        units[count++] = &UNIT_amx_emulated;
    }
};

const AvailableUnits& units_here() {
    static const AvailableUnits available;
    return available;
}

std::atomic<const PairUnit*>& current() {
    static std::atomic<const PairUnit*> unit{units_here().best};
    return unit;
}

}  // namespace

const PairUnit* const* available_units(int* count) {
    *count = units_here().count;
    return units_here().units;
}

const PairUnit* current_unit() { return current().load(std::memory_order_relaxed); }

namespace {
constexpr Index DECODED = 8;  // queries: reading the keys dominates the time

bool all_halves(const Inputs& inputs) {
    const Kind wanted = Kind::bfloat16;
    return inputs.query.kind == wanted && inputs.key.kind == wanted && inputs.value.kind == wanted;
}
}  // namespace

const PairUnit* unit_of(const Inputs& inputs) {
    return all_halves(inputs) && inputs.queries > DECODED && !inputs.bias_of_keys.data ? current_unit() : nullptr;
}

void (*unit_forward_of(const Inputs& inputs))(const Inputs&, const Score&, void* output, void* sums) {
    if (const PairUnit* unit = unit_of(inputs)) return unit->dot;
    const PairUnit* unit = current_unit();
    const bool pairs = all_halves(inputs) || (inputs.query.kind == Kind::bfloat16 && inputs.key.kind == Kind::woven);
    return unit && inputs.queries <= DECODED && pairs ? unit->decode : nullptr;
}

bool use_unit(const char* name) {
    if (std::strcmp(name, "none") == 0 || std::strcmp(name, "best") == 0) {
        current().store(*name == 'b' ? units_here().best : nullptr, std::memory_order_relaxed);
        return true;
    }
    for (int i = 0; i < units_here().count; i++)
        if (std::strcmp(units_here().units[i]->name, name) == 0) {
            current().store(units_here().units[i], std::memory_order_relaxed);
            return true;
        }
    return false;
}

}  // namespace overt
