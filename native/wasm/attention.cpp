// Attention of all heads of a layer by this library's kernels. Queries, keys and values are rows as linear maps leave them: head h has
// the numbers h · D to (h + 1) · D of each.
#include "level.hpp"
#include "simd/multiply.hpp"
#include "wasm/exported.hpp"

namespace overt::OVERT_LEVEL {
namespace {

// A page's arguments of a call: `rows` is the distance from one row to the next. If `causal`, a query attends to no later key; the last
// query is at the last key.
struct Heads {
    const float *query, *key, *value;
    std::int32_t queries, keys, heads, head_dim, query_row, key_row, causal;
    float scale;
};

struct Call {
    Scratch<Index> starts, zeros, edges;
    Scratch<double> scales;
    Inputs inputs;
    Score score;
    MaskStep step{};

    explicit Call(const Heads& of) : starts(of.heads), zeros(of.heads), edges(2 * of.queries), scales(of.heads) {
        for (int head = 0; head < of.heads; head++)
            starts.data[head] = Index{head} * of.head_dim, zeros.data[head] = 0, scales.data[head] = of.scale;
        inputs.batch = of.heads, inputs.queries = of.queries, inputs.keys = of.keys;
        inputs.head_dim = inputs.value_dim = of.head_dim;
        inputs.query = {of.query, Kind::float32, starts.data, of.query_row};
        inputs.key = {of.key, Kind::float32, starts.data, of.key_row};
        inputs.value = {of.value, Kind::float32, starts.data, of.key_row};
        score.form = Form::dot, score.scale = scales.data;
        if (!of.causal) return;
        Index *low = edges.data, *high = edges.data + of.queries;
        for (int i = 0; i < of.queries; i++) low[i] = 0, high[i] = i + 1 + of.keys - of.queries;
        step = {Step::ranges, {low, Kind::integer, zeros.data, 1}, {high, Kind::integer, zeros.data, 1}};
        inputs.mask = {&step, 1};
    }
};

// The edges of near-equal cells: at most `most` of them.
Index edges_of(Index length, Index most, Index* edges) {
    Index cells = min_of(length, most);
    for (Index i = 0; i <= cells; i++) edges[i] = i * length / cells;
    return cells;
}

}  // namespace

// to (Q, H · D): the output of every head, side by side.
EXPORTED(attend) void attend(const Heads& of, float* to) {
    Call call(of);
    int width = of.heads * of.head_dim;
    Scratch<float> apart(Index{of.queries} * width);  // (H, Q, D)
    dot<float>(call.inputs, call.score, apart.data, nullptr);
    for (int head = 0; head < of.heads; head++)
        for (int i = 0; i < of.queries; i++)
            __builtin_memcpy(to + i * width + head * of.head_dim, apart.data + (head * of.queries + i) * of.head_dim,
                             of.head_dim * sizeof(float));
}

// The displayed statistics of every head's weights: log_sum_exp, entropy (H, Q), received (H, K), top_weights, top_keys (H, Q, top),
// map_mean, map_max of at most `most` cells a side.
EXPORTED(summarize)
void summarize(const Heads& of, float* log_sum_exp, float* entropy, float* received, int top, float* top_weights,
               std::int32_t* top_keys, int most, float* map_mean, float* map_max) {
    Call call(of);
    Scratch<Index> row_edges(most + 1), key_edges(most + 1);
    Summary to{};
    to.log_sum_exp = log_sum_exp, to.entropy = entropy, to.received = received;
    to.top_weights = top_weights, to.top_keys = top_keys, to.top = top;
    to.row_edges = row_edges.data, to.row_cells = edges_of(of.queries, most, row_edges.data);
    to.key_edges = key_edges.data, to.key_cells = edges_of(of.keys, most, key_edges.data);
    to.map_mean = map_mean, to.map_max = map_max;
    summary<float>(call.inputs, call.score, to);
}

// to (Q, K): the weights of one head, from its log_sum_exp (Q).
EXPORTED(weights)
void weights(const Heads& of, int head, const float* log_sum_exp, float* to) {
    constexpr int W = WIDTH<float>, PANEL = 2 * W;
    Scratch<float> keys(Index{of.head_dim} * PANEL), scores(Index{of.queries} * PANEL);
    const float *query = of.query + head * of.head_dim, *key = of.key + head * of.head_dim;
    for (int first = 0; first < of.keys; first += PANEL) {
        int columns = min_of(PANEL, of.keys - first);
        for (int d = 0; d < of.head_dim; d++)
            for (int j = 0; j < PANEL; j++) keys.data[d * PANEL + j] = j < columns ? key[(first + j) * of.key_row + d] : 0;
        multiply<float>(query, Index{of.query_row}, Index{1}, keys.data, Index{PANEL}, scores.data, Index{PANEL}, of.queries, of.head_dim,
                        PANEL, false);
        for (int i = 0; i < of.queries; i++) {
            float* row = scores.data + i * PANEL;
            for (int v = 0; v < PANEL; v += W)
                store(row + v, exponential<float>(load(row + v) * of.scale - broadcast(log_sum_exp[i])));
            int allowed = of.causal ? i + 1 + of.keys - of.queries - first : columns;
            for (int j = 0; j < columns; j++) to[i * of.keys + first + j] = j < allowed ? row[j] : 0;
        }
    }
}

// norms (H, N): the length of each value behind its head's part of the output's linear map, ‖v_j W_O‖ (Kobayashi et al. 2020).
EXPORTED(output_norms)
void output_norms(const float* value, int count, int row, int heads, int head_dim, const float* weights, int columns, float* norms) {
    constexpr int PANEL = 2 * WIDTH<float>;
    Scratch<float> panel(Index{count} * PANEL);
    int inner = heads * head_dim;
    for (int head = 0; head < heads; head++, value += head_dim, norms += count) {
        for (int j = 0; j < count; j++) norms[j] = 0;
        for (int c = 0; c < columns; c += PANEL) {
            const float* map = weights + c * inner + head * head_dim * PANEL;
            multiply<float>(value, Index{row}, Index{1}, map, Index{PANEL}, panel.data, Index{PANEL}, count, head_dim, PANEL, false);
            for (int j = 0; j < count; j++)
                for (int v = 0; v < PANEL; v++) norms[j] += panel.data[j * PANEL + v] * panel.data[j * PANEL + v];
        }
        for (int j = 0; j < count; j++) norms[j] = __builtin_sqrtf(norms[j]);
    }
}

}  // namespace overt::OVERT_LEVEL
