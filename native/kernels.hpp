// The interface of the kernels: plain pointers into memory that the caller owns.
//
// A call has `batch` entries. Each is one head of attention: queries (Q, D), keys (K, D), values (K, E). Broadcasting, grouped heads
// and transposed layouts need no copies: `offsets` says where entry b begins in a tensor.
#pragma once

#include <cstdint>

namespace overt {

using Index = std::int64_t;

// Woven int8 codes have the order in which an integer unit multiplies them (attention/pairs/code_decode_rows.hpp).
enum class Kind : int { float32, float64, float16, bfloat16, boolean, integer, int8, woven };

// Element (i, j) of entry b is data[offsets[b] + i * row + j * column]. Offsets and strides count elements and may be 0 or negative.
struct Matrix {
    const void* data = nullptr;
    Kind kind = Kind::float32;
    const Index* offsets = nullptr;
    Index row = 0;
    Index column = 1;
};

// A mask as a postfix program over tiles: leaves push the pairs that they allow, operators combine the last one or two results.
//   ranges     first (Q) and second (Q), integer: key j is allowed if first_i <= j < second_i
//   dense      first (Q, K), boolean; strides of 0 broadcast
//   documents  first (Q) and second (K), integer: allowed if both are equal and not negative
//   blocks     first (blocks of queries, blocks of keys), boolean; second holds two integers, the queries and the keys of a block
enum class Step : int { ranges, dense, documents, both, either, inverse, blocks };

struct MaskStep {
    Step step;
    Matrix first;
    Matrix second;
};

// MASK_DEPTH: pending results of a mask's program. Deeper programs are refused before they reach a kernel.
constexpr int MASK_DEPTH = 8;

struct Mask {
    const MaskStep* steps = nullptr;
    int count = 0;  // 0: everything is allowed
};

enum class Activation : int { tanh, sigmoid, relu, leaky_relu };
enum class Form : int { dot, additive, program };

struct Program;  // attention/programs/program.hpp

// f(query_i, key_j). Additive: sum_d weight_d * activation(q_d + k_d). Dot: scale * (q . k), with a soft cap if softcap > 0.
struct Score {
    Form form = Form::additive;
    Activation activation = Activation::tanh;
    Matrix weight;                  // (1, D) for each entry, in the kernel's number type
    const double* scale = nullptr;  // one for each entry
    double softcap = 0;
    const Program* program = nullptr;  // if the score is a program
};

// Maps a row's total scores s to weights. Masked keys have weight 0.
//   sigmoid  1 / (1 + e^-s)
//   sum      s / sum s
//   identity s, for a program whose numbers are already weights
//   entmax   max((alpha - 1) s - tau, 0)^(1 / (alpha - 1)), with tau such that weights sum to 1; sparsemax if alpha is 2
enum class Normalizer : int { softmax, sigmoid, sum, entmax, identity };

struct Normalization {
    Normalizer kind = Normalizer::softmax;
    const double* alpha = nullptr;  // one for each entry, above 1 and at most 2
};

// How a long call ends early, for example by Ctrl-C. The thread that started the call asks from time to time; all threads read
// `stopped` (by __atomic functions), and then leave the results unfinished.
struct Interruption {
    bool (*asked)() = nullptr;  // whether the call must end
    std::int64_t next = 0;      // when to ask again, in nanoseconds
    int stopped = 0;
};

struct Inputs {
    Index batch = 0, queries = 0, keys = 0, head_dim = 0, value_dim = 0;  // Q, K, D and E
    Matrix query, key, value;  // columns are contiguous; any floating kind, converted where it is read
    Mask mask;
    Matrix bias;                                  // (Q, K), any strides; data == nullptr: none
    Matrix bias_of_queries, bias_of_keys;         // (Q) and (K), float64: their sum is added to a dot product; data == nullptr: none
    const double* sink = nullptr;                 // one for each entry; nullptr: none
    const double* inverse_temperature = nullptr;  // one for each entry: 1 / temperature, the factor of score + bias; nullptr: 1
    double dropout = 0;
    std::uint64_t seed = 0;
    int threads = 1;
    Interruption* interruption = nullptr;  // nullptr: the call runs to its end
    Matrix key_scale, value_scale;         // (K), float32: the factors of int8 keys and values; data == nullptr: none
};

// Inputs of the backward pass in addition to the call's. Rows are contiguous, entries follow each other, in the kernel's number type.
struct SavedForward {
    const void* output;       // (batch, Q, E)
    const void* log_sum_exp;  // (batch, Q)
    const void* upstream;     // (batch, Q, E)
};

// For a dot product: weight_ij = 2^(t_ij - base_i) / row_sum_i, with total scores t in powers of two.
struct SavedDotForward {
    const void* output;    // (batch, Q, E)
    const void* sums;      // (batch, 2, Q): each row's base and total
    const void* upstream;  // (batch, Q, E)
};

// For the other normalizers, except entmax, `sums` are (batch, 2, Q): 0, and the divisor of the weights, infinite in a row without keys.
// Under entmax they are (batch, Q, SPARSE_SUMS), or (batch, Q, SPARSE_SUMS + 2 E) if scores are no dot products: in units of
// (alpha - 1) times the score, the row's largest and its tau - largest; sum_j u_j, for u = weight^(2 - alpha); sum_j h_j, for
// h = -weight log weight; and sum_j u_j v_j and sum_j h_j v_j after dropout.
constexpr int SPARSE_SUMS = 4;

// Outputs of the backward pass: all elements, contiguous, in the kernel's number type.
struct Gradients {
    void* query;   // (batch, Q, D)
    void* key;     // (batch, K, D)
    void* value;   // (batch, K, E)
    void* weight;  // (batch, D), or (batch, constants); unused by dot products
    // (batch, Q): sum_j weight_ij * d_weight_ij, from which a sink's gradient is computed; under entmax the gradient of the row's alpha.
    // nullptr, for dot products only: not wanted.
    void* delta;
    // The gradient of the bias, in the bias's layout. The kernel adds to it; the caller clears it. nullptr: not wanted.
    void* bias;
    Index bias_size;  // number of elements
    void* bias_of_keys = nullptr;  // (batch, K), for a dot product; nullptr: not wanted
};

// Directions (tangents) of the inputs, each of its input's shape. data == nullptr, or no sink: a tangent of 0. A program's queries, keys
// and constants hold their directions in additional columns.
struct Directions {
    Matrix query, key, value, bias;
    const double* sink = nullptr;  // one for each entry
};

// Outputs of the forward pass with tangents: contiguous, in the kernel's number type.
struct Tangents {
    void* output;   // (batch, Q, E)
    void* sums;     // (batch, 2, Q): see SavedDotForward
    void* tangent;  // (batch, Q, E): the output's tangent
    void* mean;     // (batch, Q): each row's mean score tangent, sum_j weight_ij * tangent_ij. nullptr: not wanted
};

// A set of keys for each query: key j belongs to query i's set if low_i <= j < high_i and, with ids, both have the same id.
// Ids are from 0 to 2^31 - 1; any other number matches no id.
struct KeySet {
    Matrix low, high;         // (Q), integer
    Matrix query_id, key_id;  // (Q) and (K), integer; data == nullptr: no ids
};

// Statistics of the weights, under a softmax or under `by`; `sums` are the forward pass's, in the form of SavedDotForward for
// dot products, for any score. Contiguous, in the kernel's number type; top_keys are int32, -1 if there are fewer keys.
struct Summary {
    void* log_sum_exp;  // (batch, Q); nullptr unless it is a softmax
    void* entropy;      // (batch, Q): of the weights divided by their sum, NaN if one is negative
    void* received;     // (batch, K)
    void* top_weights;  // (batch, Q, top)
    std::int32_t* top_keys;
    Index top;
    const Index* row_edges;  // row_cells + 1 ascending edges; nullptr: no map
    const Index* key_edges;
    Index row_cells, key_cells;
    void* map_mean;  // (batch, row_cells, key_cells)
    void* map_max;
    void* output;  // (batch, Q, E); nullptr: not wanted
    const KeySet* sets;
    Index set_count;
    void* masses;  // (batch, Q, set_count): the weight on each set of keys; nullptr: no sets
    Normalization by;
    const void* sums;
    std::int32_t* support;  // (batch, Q): number of non-zero weights, -1 if weights are NaN or infinite; nullptr under a softmax, as sums
};

// The kernels of one SIMD level in one number type, float or double.
struct Kernels {
    void (*additive)(const Inputs&, const Score&, void* output, void* log_sum_exp);
    void (*additive_gradients)(const Inputs&, const Score&, const SavedForward&, const Gradients&);
    void (*additive_scores)(const Inputs&, const Score&, void* scores);  // (batch, Q, K), before mask and bias
    void (*additive_scores_gradients)(const Inputs&, const Score&, const void* upstream, const Gradients&);
    void (*dot)(const Inputs&, const Score&, void* output, void* sums);  // sums may be nullptr: not wanted
    void (*dot_gradients)(const Inputs&, const Score&, const SavedDotForward&, const Gradients&);
    // For dot products and for programs with tangents, under a softmax. `known`: output and sums are inputs from an earlier pass.
    void (*tangent)(const Inputs&, const Score&, const Directions&, const Tangents&, bool known);
    // The gradients' tangents, nullptr if not wanted (dot products only), the output's tangent and each row's mean score tangent. After the
    // tangents of a program's columns come as many undefined numbers in the place of their directions. Unless `known`, output and
    // sums are computed here, into the memory from which they are read.
    void (*second)(const Inputs&, const Score&, const SavedDotForward&, const Directions&, const Gradients&, void* of_output, void* mean,
                   bool known);
    void (*summary)(const Inputs&, const Score&, const Summary&);
    // Under the other normalizers, for any score; gradients for all scores but programs. sums may be nullptr: not wanted.
    void (*normalized)(const Inputs&, const Score&, const Normalization&, void* output, void* sums);
    void (*normalized_gradients)(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);
    // Scores of a program: columns of queries and keys are its inputs, and Gradients::weight is the gradient of its constants.
    void (*traced)(const Inputs&, const Score&, void* output, void* sums);  // under a softmax
    void (*traced_gradients)(const Inputs&, const Score&, const Normalization&, const SavedDotForward&, const Gradients&);
};

// Loops on registers only, which return the number of float32 numbers computed: an upper bound of any kernel's speed.
struct Ceilings {
    Index (*multiply_adds)(Index rounds);
    Index (*divisions)(Index rounds);
};

struct Smoothing;  // smoothing.hpp

struct Level {
    const char* name;
    Kernels float32;
    Kernels float64;
    Ceilings ceilings;
    const Smoothing* smoothing;
};

// ROWS, KEYS: the largest numbers of query rows and of keys in a tile.
constexpr int ROWS = 32;
constexpr int KEYS = 64;
// QUERIES: queries in a transposed tile, whose keys are rows and whose queries are columns.
constexpr int QUERIES = 64;

}  // namespace overt
