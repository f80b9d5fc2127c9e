// Dot-product attention of bfloat16 queries, keys and values under a softmax, forward: products of pairs, sums and weights in float32.
//
// As SoftmaxForward, but sums of values are transposed too: features are rows and queries lanes. So the woven weights of a tile are B of
// the second product, and its A, the transposed values, serves several blocks of queries.
#include <new>

#include "attention/pairs/pair_tiles.hpp"

namespace overt::OVERT_LEVEL {
namespace {

constexpr Index BLOCKS_TOGETHER = 4;

// A block of queries: woven queries and the state of its softmax.
struct PairBlock {
    TransposedMask<float> mask;
    Word* queries = nullptr;                                            // (head_dim / 2, QUERIES)
    float *base = nullptr, *row_sum = nullptr, *accumulator = nullptr;  // (QUERIES), (QUERIES), (value_dim, QUERIES)
};

class PairForward {
    const Inputs& inputs;
    const Score& score;
    float *output, *saved_sums;
    Team team;
    Index dim, value_dim, blocks, together, chunks, block_words, workspace_words;
    Scratch<Word> workspaces;

   public:
    PairForward(const Inputs& inputs, const Score& score, float* output, float* saved_sums)
        : inputs(inputs), score(score), output(output), saved_sums(saved_sums), team(inputs, true),
          dim(rounded_up<Index>(inputs.head_dim, PAIR_TERMS)), value_dim(rounded_up<Index>(inputs.value_dim, PAIR_TERMS)),
          blocks(count(inputs.queries, QUERIES)),
          together(max_of<Index>(1, min_of(BLOCKS_TOGETHER, inputs.batch * blocks / (4 * team.threads)))),
          chunks(count(blocks, together)),
          block_words(static_cast<Index>(rounded_up(sizeof(PairBlock), std::size_t(64)) / sizeof(Word)) +
                      QUERIES * (dim / 2 + 2 + value_dim)),
          workspace_words(rounded_up<Index>(together * block_words + KEYS * (dim / 2 + 2 * value_dim) + 5 * TRANSPOSED_TILE, 16) + 64),
          workspaces(team.threads * workspace_words) {}

    void run() {
        // The last blocks come first: under a causal mask they take longest.
        Index items = team.entries * chunks;
        team.each(items, [&](Index item, int thread) {
            Tiles tiles;
            rows(items - 1 - item, workspaces.data + thread * workspace_words);
        });
    }

   private:
    // One thread's memory: its blocks; a tile's keys, its values and transposed values, scores, woven weights, biases, which pairs are allowed.
    struct Workspace {
        Word* blocks;
        Half* keys;
        Word* values;
        Half* transposed;
        float* scores;
        Word* weights;
        float* spare;
        std::uint8_t* allowed;
        Workspace(Word* memory, Index block_words, Index dim, Index value_dim)
            : blocks(memory), keys(reinterpret_cast<Half*>(blocks + block_words)), values(blocks + block_words + KEYS * dim / 2),
              transposed(reinterpret_cast<Half*>(values + KEYS * value_dim)),
              scores(reinterpret_cast<float*>(values + 2 * KEYS * value_dim)),
              weights(reinterpret_cast<Word*>(scores + TRANSPOSED_TILE)), spare(scores + 2 * TRANSPOSED_TILE),
              allowed(reinterpret_cast<std::uint8_t*>(scores + 4 * TRANSPOSED_TILE)) {}
    };

    PairBlock& begin(Index entry, Index block, Word* memory, Half* spare) const {
        PairBlock& result = *new (memory) PairBlock{TransposedMask<float>(inputs, entry, block)};
        result.queries = memory + static_cast<Index>(rounded_up(sizeof(PairBlock), std::size_t(64)) / sizeof(Word));
        result.base = reinterpret_cast<float*>(result.queries + QUERIES * dim / 2);
        result.row_sum = result.base + QUERIES, result.accumulator = result.row_sum + QUERIES;
        HalfRows rows(inputs.query, entry, result.mask.row, result.mask.rows, result.mask.rows, inputs.head_dim, spare);
        transpose_words(rows.words(), rows.row / 2, result.mask.rows, dim / 2, result.queries, QUERIES);
        for (int r = 0; r < QUERIES; r++) result.base[r] = -__builtin_inff(), result.row_sum[r] = 0;
        clear(result.accumulator, value_dim * QUERIES);
        return result;
    }

    // Some blocks of queries against all keys.
    void rows(Index item, Word* memory) {
        Index entry = item / chunks, first = item % chunks * together, block_count = min_of(together, blocks - first);
        Workspace workspace(memory, together * block_words, dim, value_dim);
        Index low = inputs.keys, high = 0;
        for (Index b = 0; b < block_count; b++) {
            PairBlock& block = begin(entry, first + b, workspace.blocks + b * block_words, workspace.keys);
            low = min_of(low, block.mask.low), high = max_of(high, block.mask.high);
        }
        for (Index key = low - low % KEYS; key < high && !interrupted(inputs); key += KEYS) {
            int keys = static_cast<int>(min_of<Index>(KEYS, inputs.keys - key)), whole = rounded_up(keys, PAIR_TERMS);
            HalfRows key_rows(inputs.key, entry, key, keys, whole, inputs.head_dim, workspace.keys);
            HalfRows values(inputs.value, entry, key, keys, whole, inputs.value_dim, reinterpret_cast<Half*>(workspace.values));
            transpose_halves(values, whole, value_dim, workspace.transposed, reinterpret_cast<Word*>(workspace.scores));
            for (Index b = 0; b < block_count; b++)
                against(*reinterpret_cast<PairBlock*>(workspace.blocks + b * block_words), entry, key, keys, key_rows, values, workspace);
        }
        for (Index b = 0; b < block_count; b++)
            finish(entry, *reinterpret_cast<PairBlock*>(workspace.blocks + b * block_words), workspace);
    }

    // A block of queries against a tile of keys.
    void against(PairBlock& block, Index entry, Index key, int keys, const HalfRows& key_rows, const HalfRows& values,
                 const Workspace& workspace) const {
        Tile at{entry, block.mask.row, key, block.mask.rows, 0};
        Index end = min_of(block.mask.high, key + keys);
        while (at.key + PAIR_TERMS <= block.mask.low) at.key += PAIR_TERMS;
        Units<float> units(inputs, score, entry);
        for (; at.key < end; at.key += at.keys) {
            Coverage coverage = block.mask.next(at, end, workspace.allowed);
            if (coverage == Coverage::none) continue;
            whole_lanes(block.mask.row, block.mask.rows, PAIR_LANES, at);
            int skipped = static_cast<int>(at.row - block.mask.row), offset = static_cast<int>(at.key - key);
            int lanes = rounded_up(at.rows, PAIR_LANES), terms = rounded_up(at.keys, PAIR_TERMS);
            multiply_pairs(key_rows.data + offset * key_rows.row, key_rows.row, block.queries + skipped, QUERIES, workspace.scores,
                           QUERIES, rounded_up(at.keys, PAIR_LANES), static_cast<int>(dim), lanes, false);
            bool plain = coverage == Coverage::full && units.cap == 0 && !inputs.bias.data && units.scale > 0;
            if (!plain) {
                each_vector<float>(at, [&](int i) { store(workspace.scores + i, load(workspace.scores + i) * units.scale); });
                finish_transposed_scores(inputs, units, at, coverage, block.mask, workspace.allowed, workspace.scores, workspace.spare);
            }
            weigh(block, at, skipped, plain ? units.scale : 1.0f, terms, workspace);
            if (inputs.dropout > 0) drop(at, workspace);
            // Weights of masked keys, and of those after the tile's, are 0.
            if ((coverage == Coverage::full && at.keys == terms) ||
                all_finite_halves(values.data + offset * values.row, values.row, terms, value_dim))
                multiply_pairs(workspace.transposed + offset, Index{KEYS}, workspace.weights, QUERIES, block.accumulator + skipped,
                               QUERIES, static_cast<int>(value_dim), terms, lanes, true);
            else
                add_allowed(block, at, coverage, skipped, values.data + offset * values.row, values.row, workspace);
        }
    }

    // Scores become woven weights 2^(scale * t - base), rounded, and are summed; padded with zeros to whole terms.
    void weigh(PairBlock& block, const Tile& at, int skipped, float scale, int terms, const Workspace& workspace) const {
        constexpr int W = WIDTH<float>;
        constexpr float NEVER = -__builtin_inff();
        for (int r = 0; r < at.rows; r += W) {
            const float* scores = workspace.scores + r;
            Word* weights = workspace.weights + r;
            Vector<float> largest[4] = {broadcast(NEVER), broadcast(NEVER), broadcast(NEVER), broadcast(NEVER)};
            int c = 0;
            for (; c + 4 <= at.keys; c += 4)
                for (int i = 0; i < 4; i++) largest[i] = lane_max(load(scores + (c + i) * QUERIES), largest[i]);
            for (; c < at.keys; c++) largest[0] = lane_max(load(scores + c * QUERIES), largest[0]);
            Vector<float> row_max = lane_max(lane_max(largest[0], largest[1]), lane_max(largest[2], largest[3])) * scale;
            int lane = skipped + r;
            Vector<float> base = load(block.base + lane);
            if (lanes_above<float>(row_max, base + float(SLACK))) base = rebase(block, lane, row_max > base + float(SLACK) ? row_max : base);
            base = base == NEVER ? Vector<float>{} : base;
            Vector<float> first_sum{}, second_sum{};
            for (c = 0; c + 2 <= at.keys; c += 2) {
                Vector<float> first = rough_power(load(scores + c * QUERIES) * scale - base);
                Vector<float> second = rough_power(load(scores + (c + 1) * QUERIES) * scale - base);
                Bits<float> pair = woven(first, second);
                first_sum += first_of(pair), second_sum += second_of(pair);
                store(reinterpret_cast<float*>(weights + c / 2 * QUERIES), (Vector<float>)pair);
            }
            if (c < at.keys) {
                Bits<float> pair = woven(rough_power(load(scores + c * QUERIES) * scale - base), Vector<float>{});
                first_sum += first_of(pair);
                store(reinterpret_cast<float*>(weights + c / 2 * QUERIES), (Vector<float>)pair), c += 2;
            }
            for (; c < terms; c += 2) store(reinterpret_cast<float*>(weights + c / 2 * QUERIES), Vector<float>{});
            store(block.row_sum + lane, load(block.row_sum + lane) + (first_sum + second_sum));
        }
    }

    // Rescales the sums of a vector of lanes to other bases.
    Vector<float> rebase(PairBlock& block, int lane, Vector<float> now) const {
        constexpr float NEVER = -__builtin_inff();
        Vector<float> before = load(block.base + lane), factor = power_of_two<float>(before - now);
        // Rows without sums need no rescaling.
        factor = (now == before) | (before == broadcast(NEVER)) ? broadcast(1.0f) : factor;
        store(block.base + lane, now);
        store(block.row_sum + lane, load(block.row_sum + lane) * factor);
        float* sums = block.accumulator + lane;
        for (Index e = 0; e < value_dim; e++, sums += QUERIES) store(sums, load(sums) * factor);
        return now;
    }

    // Multiplies kept weights by 1 / (1 - p), rounds them again, and clears dropped ones.
    void drop(const Tile& at, const Workspace& workspace) const {
        float* factors = workspace.scores;
        each_vector<float>(at, [&](int i) { store(factors + i, broadcast(1.0f)); });
        if (at.keys % 2) for (int r = 0; r < QUERIES; r += WIDTH<float>) store(factors + at.keys * QUERIES + r, Vector<float>{});
        apply_dropout_transposed(inputs, at, factors);
        for (int c = 0; c < at.keys; c += 2)
            for (int r = 0; r < at.rows; r += WIDTH<float>) {
                float* place = reinterpret_cast<float*>(workspace.weights + c / 2 * QUERIES + r);
                Bits<float> pair = (Bits<float>)load(place);
                const float* factor = factors + c * QUERIES + r;
                store(place, (Vector<float>)woven(first_of(pair) * load(factor), second_of(pair) * load(factor + QUERIES)));
            }
    }

    // Pair by pair if a value is not finite, skipping masked pairs: 0 * NaN is NaN.
    void add_allowed(PairBlock& block, const Tile& at, Coverage coverage, int skipped, const Half* values, Index value_row,
                     const Workspace& workspace) const {
        for (int c = 0; c < at.keys; c++)
            for (int r = 0; r < at.rows; r++) {
                if (coverage == Coverage::partial && !block.mask.attends(at, workspace.allowed, r, c)) continue;
                float weight = bfloat16_to_float(static_cast<Half>(workspace.weights[c / 2 * QUERIES + r] >> (c % 2 * 16)));
                for (Index e = 0; e < inputs.value_dim; e++)
                    block.accumulator[e * QUERIES + skipped + r] += weight * bfloat16_to_float(values[c * value_row + e]);
            }
    }

    void finish(Index entry, PairBlock& block, const Workspace& workspace) const {
        if (inputs.sink && inputs.sink[entry] != -__builtin_inf()) {
            float sink = static_cast<float>(inputs.sink[entry] * LOG2E);
            for (int r = 0; r < QUERIES; r += WIDTH<float>) {
                Vector<float> base = rebase(block, r, lane_max(broadcast(sink), load(block.base + r)));
                store(block.row_sum + r, load(block.row_sum + r) + power_of_two<float>(sink - base));
            }
        }
        float* transposed = workspace.scores;  // (QUERIES, 64) at a time
        constexpr Index AT_ONCE = QUERIES;
        for (Index e = 0; e < inputs.value_dim; e += AT_ONCE) {
            Index columns = min_of(AT_ONCE, inputs.value_dim - e);
            transpose(block.accumulator + e * QUERIES, Index{QUERIES}, static_cast<int>(columns), QUERIES, transposed, AT_ONCE);
            for (int r = 0; r < block.mask.rows; r++) {
                Index row = block.mask.row + r;
                float row_sum = block.row_sum[r], inverse_sum = row_sum == 0 ? 0 : 1 / row_sum;
                if (e == 0) save_sums(saved_sums, inputs, entry, row, block.base[r], row_sum);
                put_row(transposed + r * AT_ONCE, inverse_sum, columns, result_row<float>(output, entry, row, inputs.queries, inputs.value_dim) + e);
            }
        }
    }
};

}  // namespace

void pair_dot(const Inputs&, const Score&, void* output, void* sums);
void pair_dot(const Inputs& inputs, const Score& score, void* output, void* sums) {
    PairForward(inputs, score, static_cast<float*>(output), static_cast<float*>(sums)).run();
}

}  // namespace overt::OVERT_LEVEL
