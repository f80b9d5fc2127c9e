// A model's weights as a page holds them: letters of base64, which are whole numbers of 16 or 8 bits with scales, which become float32.
#include "simd/vectors.hpp"
#include "wasm/exported.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr std::uint8_t NONE = 255;

std::uint8_t value_of(std::uint8_t letter) {
    if (letter >= 'A' && letter <= 'Z') return letter - 'A';
    if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9') return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : NONE;
}

// Numbers of eight columns stand together, as `product` reads them; each column has a scale.
template <class N>
void panels(const N* from, const float* scales, int inner, int columns, float* to) {
    for (int panel = 0; panel < columns; panel += 8, scales += 8)
        for (int k = 0; k < inner; k++, from += 8, to += 8)
            for (int lane = 0; lane < 8; lane++) to[lane] = static_cast<float>(from[lane]) * scales[lane];
}

template <class N>
void rows_of(const N* table, const float* scales, const std::int32_t* rows, int count, int width, int add, float* to) {
    for (int r = 0; r < count; r++, to += width)
        for (int c = 0; c < width; c++)
            to[c] = (add ? to[c] : 0) + static_cast<float>(table[rows[r] * width + c]) * scales[rows[r]];
}

}  // namespace

// Base64 (RFC 4648) without line ends, letters in fours, decoded in place. Returns the number of bytes; -1: these letters are none.
EXPORTED(decode_base64) int decode_base64(std::uint8_t* letters, int count) {
    std::uint8_t values[256];
    for (int i = 0; i < 256; i++) values[i] = value_of(static_cast<std::uint8_t>(i));
    if (count % 4) return -1;
    std::uint8_t* to = letters;
    int padding = count && letters[count - 1] == '=' ? (letters[count - 2] == '=' ? 2 : 1) : 0;
    for (int i = 0; i < padding; i++) letters[count - 1 - i] = 'A';
    std::uint32_t wrong = 0;
    for (int i = 0; i < count; i += 4) {
        std::uint32_t a = values[letters[i]], b = values[letters[i + 1]], c = values[letters[i + 2]], d = values[letters[i + 3]];
        wrong |= a | b | c | d;
        std::uint32_t bits = a << 18 | b << 12 | c << 6 | d;
        *to++ = static_cast<std::uint8_t>(bits >> 16);
        *to++ = static_cast<std::uint8_t>(bits >> 8);
        *to++ = static_cast<std::uint8_t>(bits);
    }
    return wrong & 128 ? -1 : count / 4 * 3 - padding;
}

// Whether bytes are the ones that were packed: the sum of all 32-bit words, each times an odd number of its own.
EXPORTED(checksum) std::uint32_t checksum(const std::uint32_t* words, int count) {
    std::uint32_t sum = 0;
    for (int i = 0; i < count; i++) sum += words[i] * (2 * static_cast<std::uint32_t>(i) + 1);
    return sum;
}

EXPORTED(panels_from_int16) void panels_from_int16(const std::int16_t* from, const float* scales, int inner, int columns, float* to) {
    panels(from, scales, inner, columns, to);
}
EXPORTED(panels_from_int8) void panels_from_int8(const std::int8_t* from, const float* scales, int inner, int columns, float* to) {
    panels(from, scales, inner, columns, to);
}

// to (count, width) = rows of a table, added to the old ones where `add`.
EXPORTED(rows_from_int16)
void rows_from_int16(const std::int16_t* table, const float* scales, const std::int32_t* rows, int count, int width, int add, float* to) {
    rows_of(table, scales, rows, count, width, add, to);
}
EXPORTED(rows_from_int8)
void rows_from_int8(const std::int8_t* table, const float* scales, const std::int32_t* rows, int count, int width, int add, float* to) {
    rows_of(table, scales, rows, count, width, add, to);
}

}  // namespace overt::OVERT_LEVEL
