// Dot-product attention, forward.
#include "attention/dot/dot_decode.hpp"
#include "attention/tiles/converted_rows.hpp"
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

// All blocks of queries. Rows of half precision are converted for some entries at a time, so that they stay in the second cache, and at
// least four entries a thread, so that no thread waits long for the others; not if that takes 256 MB, or for few queries.
template <class T>
void forward(const Inputs& inputs, const Score& score, T* output, T* sums) {
    constexpr Index NEAR = 1 << 17, MOST = 1 << 26;
    const Team team(inputs, true);
    const bool half_keys = inputs.key.kind != KIND<T>, half_values = inputs.value.kind != KIND<T>;
    const Index size = inputs.keys * (inputs.head_dim + inputs.value_dim);
    Index at_once = min_of(team.entries, team.threads * max_of<Index>(team.threads > 1 ? 4 : 1, NEAR / max_of<Index>(size, 1)));
    const bool converting = (half_keys || half_values) && inputs.queries > 2 * QUERIES && at_once * size <= MOST;
    ConvertedRows<T> keys(inputs, inputs.key, inputs.head_dim, converting && half_keys ? at_once : 0);
    ConvertedRows<T> values(inputs, inputs.value, inputs.value_dim, converting && half_values ? at_once : 0);
    if (!converting) at_once = max_of<Index>(team.entries, 1);
    Inputs converted = inputs;
    converted.key = keys.matrix(), converted.value = values.matrix();
    SoftmaxForward<T, DotProducts<T>> blocks(converted, score, output, sums);
    for (Index entry = 0; entry < team.entries && !interrupted(inputs); entry += at_once) {
        const Index entries = min_of(at_once, team.entries - entry);
        keys.begin(team, entry, entries), values.begin(team, entry, entries);
        blocks.run(entry, entries);
    }
}

}  // namespace

template <class T>
void dot(const Inputs& inputs, const Score& score, void* output, void* sums) {
    T *to = static_cast<T*>(output), *saved_sums = static_cast<T*>(sums);
    if (inputs.queries <= DECODE_QUERIES)
        DotDecode<T>(inputs, score, to, saved_sums).run();
    else if constexpr (CONVERTS)
        forward<T>(inputs, score, to, saved_sums);
    else
        SoftmaxForward<T, DotProducts<T>>(inputs, score, to, saved_sums).run();
}

template void dot<float>(const Inputs&, const Score&, void*, void*);
template void dot<double>(const Inputs&, const Score&, void*, void*);

}  // namespace overt::OVERT_LEVEL
