// Dot-product attention, forward.
#include "attention/dot/dot_decode.hpp"
#include "attention/tiles/softmax_forward.hpp"
#include "level.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// Products of queries and keys.
template <class T>
class DotProducts {
    const Inputs& inputs;
    T *queries, *keys;

   public:
    static Index size(const Inputs& inputs, const Score&) { return (QUERIES + KEYS) * inputs.head_dim; }
    DotProducts(const Inputs& inputs, const Score&, T* memory)
        : inputs(inputs), queries(memory), keys(memory + QUERIES * inputs.head_dim) {}

    void begin(const Tile& block, const Units<T>& units) { transpose_rows(inputs.query, block, inputs.head_dim, units.scale, queries, keys); }

    void tile(const Tile& at, int skipped, const Units<T>&, T* scores) {
        Left<T> left = rows_at(inputs.key, at, inputs.head_dim, keys);
        multiply(left.data, left.row, left.column, queries + skipped, Index{QUERIES}, scores, Index{QUERIES}, at.keys,
                 static_cast<int>(inputs.head_dim), at.rows, false);
    }
};

}  // namespace

template <class T>
void dot(const Inputs& inputs, const Score& score, void* output, void* sums) {
    T *to = static_cast<T*>(output), *saved_sums = static_cast<T*>(sums);
    if (inputs.queries <= DECODE_QUERIES)
        DotDecode<T>(inputs, score, to, saved_sums).run();
    else
        SoftmaxForward<T, DotProducts<T>>(inputs, score, to, saved_sums).run();
}

template void dot<float>(const Inputs&, const Score&, void*, void*);
template void dot<double>(const Inputs&, const Score&, void*, void*);

}  // namespace overt::OVERT_LEVEL
