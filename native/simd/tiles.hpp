// The matrix unit of x86 (AMX): eight registers of 16 rows of 64 bytes, and C += A B of pairs of bfloat16. OVERT_TILES is 1 for the unit itself,
// 2 for a plain C++ emulation of the same instructions, as Intel's manual writes them, which runs everywhere and is for tests.
//
// The instructions take the numbers of registers as literals, so these are macros. A function that uses them begins with TILE_REGISTERS.
#pragma once

#include <cstdint>

#include "simd/vectors.hpp"

namespace overt::OVERT_LEVEL {

constexpr int TILE_ROWS = 16, TILE_TERMS = 32;  // rows of A and columns of B and C; the bfloat16 of a row of A

#if OVERT_TILES == 1

struct TileConfiguration {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
    TileConfiguration() {
        for (int i = 0; i < 8; i++) bytes[i] = 64, rows[i] = TILE_ROWS;
    }
};

// The registers of this thread while it lasts. The unit reads the configuration behind the compiler's back.
class Tiles {
   public:
    Tiles() {
        const TileConfiguration configuration;
        __asm__ volatile("ldtilecfg %0" ::"m"(configuration) : "memory");
    }
    ~Tiles() { __asm__ volatile("tilerelease" ::: "memory"); }
    Tiles(const Tiles&) = delete;
};

#define TILE_REGISTERS
#define TILE_ZERO(n) __asm__ volatile("tilezero %%tmm" #n::)
#define TILE_LOAD(n, from, bytes) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #n ::"r"(from), "r"(static_cast<Index>(bytes)) : "memory")
#define TILE_STORE(n, to, bytes) \
    __asm__ volatile("tilestored %%tmm" #n ", (%0,%1,1)" ::"r"(to), "r"(static_cast<Index>(bytes)) : "memory")
#define TILE_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c::)

#else

class Tiles {
   public:
    Tiles() {}
    ~Tiles() {}
};

struct Tile16 {
    std::uint32_t words[TILE_ROWS][TILE_ROWS];

    void zero() { __builtin_memset(words, 0, sizeof words); }
    void load(const void* from, Index bytes) {
        for (int r = 0; r < TILE_ROWS; r++) __builtin_memcpy(words[r], static_cast<const char*>(from) + r * bytes, 64);
    }
    void store(void* to, Index bytes) const {
        for (int r = 0; r < TILE_ROWS; r++) __builtin_memcpy(static_cast<char*>(to) + r * bytes, words[r], 64);
    }

    // Denormal numbers count as 0, before and after each operation. Even and odd terms are summed apart.
    static float flushed(std::uint32_t bits) {
        if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u;
        float number;
        __builtin_memcpy(&number, &bits, 4);
        return number;
    }
    static float flushed(float number) {
        std::uint32_t bits;
        __builtin_memcpy(&bits, &number, 4);
        return flushed(bits);
    }
    void add_product(const Tile16& a, const Tile16& b) {
        for (int r = 0; r < TILE_ROWS; r++) {
            float even[TILE_ROWS] = {}, odd[TILE_ROWS] = {};
            for (int k = 0; k < TILE_ROWS; k++) {
                float first = flushed(a.words[r][k] << 16), second = flushed(a.words[r][k] & 0xffff0000u);
                for (int n = 0; n < TILE_ROWS; n++) {
                    even[n] = flushed(__builtin_fmaf(first, flushed(b.words[k][n] << 16), even[n]));
                    odd[n] = flushed(__builtin_fmaf(second, flushed(b.words[k][n] & 0xffff0000u), odd[n]));
                }
            }
            for (int n = 0; n < TILE_ROWS; n++) {
                float total = flushed(flushed(even[n] + odd[n]) + flushed(words[r][n]));
                __builtin_memcpy(&words[r][n], &total, 4);
            }
        }
    }
};

#define TILE_REGISTERS Tile16 tile_registers[8]
#define TILE_ZERO(n) tile_registers[n].zero()
#define TILE_LOAD(n, from, bytes) tile_registers[n].load(from, bytes)
#define TILE_STORE(n, to, bytes) tile_registers[n].store(to, bytes)
#define TILE_PRODUCT(c, a, b) tile_registers[c].add_product(tile_registers[a], tile_registers[b])

#endif

}  // namespace overt::OVERT_LEVEL
