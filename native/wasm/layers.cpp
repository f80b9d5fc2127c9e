// What a Transformer needs next to attention: linear maps, activations, layer norms.
#include "simd/multiply.hpp"
#include "wasm/exported.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr int W = WIDTH<float>, PANEL = 2 * W;
// TOGETHER: rows multiplied with one panel after the other, few enough to stay in the nearest caches.
constexpr int TOGETHER = 8;

// x times the normal distribution's probability below x: x / 2 · (1 + erf(x / √2)), Hendrycks and Gimpel 2016. erf by Abramowitz and
// Stegun 7.1.26, whose error is below 1.5e-7.
Vector<float> gelu(Vector<float> x) {
    Vector<float> size = lane_max(x, -x) * 0.70710678118654752f;
    Vector<float> t = 1.0f / (1.0f + 0.3275911f * size);
    Vector<float> sum = broadcast(1.061405429f);
    sum = multiply_add(sum, t, broadcast(-1.453152027f));
    sum = multiply_add(sum, t, broadcast(1.421413741f));
    sum = multiply_add(sum, t, broadcast(-0.284496736f));
    sum = multiply_add(sum, t, broadcast(0.254829592f));
    Vector<float> above = 0.5f * sum * t * exponential<float>(-size * size);  // the probability above |x|
    return x * (x < 0 ? above : 1.0f - above);
}

Vector<float> relu(Vector<float> x) { return x < 0 ? Vector<float>{} : x; }

template <Vector<float> (*ACTIVATION)(Vector<float>)>
void each_vector(float* numbers, int count) {
    for (int i = 0; i < count; i += W) store(numbers + i, ACTIVATION(load(numbers + i)));
}

}  // namespace

// to (rows, columns) = from (rows, inner) · weights + bias. The weights stand in panels of eight columns: number (k, c) is at
// ((c / 8) · inner + k) · 8 + c % 8. `columns` is a multiple of eight; bias may be nullptr.
EXPORTED(product)
void product(const float* from, int rows, int inner, const float* weights, const float* bias, int columns, float* to) {
    for (int first = 0; first < rows; first += TOGETHER) {
        int count = min_of(TOGETHER, rows - first);
        for (int c = 0; c < columns; c += PANEL) {
            float* corner = to + first * columns + c;
            for (int r = 0; r < count; r++)
                for (int v = 0; v < PANEL; v += W) store(corner + r * columns + v, bias ? load(bias + c + v) : Vector<float>{});
            multiply<float>(from + first * inner, Index{inner}, Index{1}, weights + c * inner, Index{PANEL}, corner, Index{columns},
                            count, inner, PANEL, true);
        }
    }
}

EXPORTED(gelu) void gelu_in_place(float* numbers, int count) { each_vector<gelu>(numbers, count); }
EXPORTED(relu) void relu_in_place(float* numbers, int count) { each_vector<relu>(numbers, count); }

EXPORTED(add) void add_in_place(const float* from, int count, float* to) {
    for (int i = 0; i < count; i += W) store(to + i, load(to + i) + load(from + i));
}

// to = (x − mean) / √(variance + epsilon) · gain + bias of each row, Ba et al. 2016. `to` may be `from`. `width` is a multiple of four.
EXPORTED(layer_norm)
void layer_norm(const float* from, int rows, int width, const float* gain, const float* bias, float epsilon, float* to) {
    for (int r = 0; r < rows; r++, from += width, to += width) {
        Vector<float> total{}, squares{};
        for (int c = 0; c < width; c += W) total += load(from + c);
        Vector<float> mean = broadcast(sum<float>(total) / static_cast<float>(width));
        for (int c = 0; c < width; c += W) {
            Vector<float> rest = load(from + c) - mean;
            squares = multiply_add(rest, rest, squares);
        }
        float variance = sum<float>(squares) / static_cast<float>(width);
        Vector<float> scale = broadcast(1.0f / __builtin_sqrtf(variance + epsilon));
        for (int c = 0; c < width; c += W)
            store(to + c, multiply_add((load(from + c) - mean) * scale, load(gain + c), load(bias + c)));
    }
}

}  // namespace overt::OVERT_LEVEL
