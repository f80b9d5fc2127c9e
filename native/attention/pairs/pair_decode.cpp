// Decoding in bfloat16 by products of pairs.
#include "attention/dot/dot_decode.hpp"
#include "attention/pairs/pair_decode_rows.hpp"

namespace overt::OVERT_LEVEL {

void pair_decode(const Inputs&, const Score&, void* output, void* sums);
void pair_decode(const Inputs& inputs, const Score& score, void* output, void* sums) {
    DotDecode<float, SoftmaxState<float>, PairProducts>(inputs, score, static_cast<float*>(output), static_cast<float*>(sums)).run();
}

}  // namespace overt::OVERT_LEVEL
