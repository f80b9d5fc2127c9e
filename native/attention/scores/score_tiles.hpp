// Where transposed tiles of scores come from, for the normalizers that take any score.
//
// A source has memory for some entries of the batch at a time (`begin` selects one for a slot) and readers, one for each thread: `begin`
// selects a block of at most QUERIES queries of a slot's entry, `scores` writes out[c * QUERIES + r] = factor * f(query r, key c) for a
// tile of it. Lanes beyond the tile's last row hold anything.
#pragma once

#include <new>

#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

template <class T>
class DotTiles {
    const Inputs& inputs;
    const Score& score;

   public:
    DotTiles(const Inputs& inputs, const Score& score, Index) : inputs(inputs), score(score) {}
    void begin(Index, Index) {}

    class Reader {
        const DotTiles& source;
        T *queries, *keys;
        Index row = 0, padded_dim;
        bool few = false;  // rows are then not transposed: their products are sums over lanes
        Units<T> units;

       public:
        static Index size(const DotTiles& source) { return (QUERIES + KEYS) * padded<T>(source.inputs.head_dim) + KEYS * QUERIES; }
        Reader(const DotTiles& source, T* memory)
            : source(source), queries(memory), keys(queries + QUERIES * padded<T>(source.inputs.head_dim)),
              padded_dim(padded<T>(source.inputs.head_dim)), units(source.score, 0, 1) {}

        void begin(Index, const Tile& block, double factor) {
            const Inputs& inputs = source.inputs;
            constexpr int FEW = 8;
            row = block.row, few = block.rows <= FEW, units = Units<T>(source.score, block.entry, factor);
            if (!few) return transpose_rows(inputs.query, block, inputs.head_dim, units.scale, queries, keys);
            for (int r = 0; r < block.rows; r++) {
                T* to = queries + r * padded_dim;
                read_row(inputs.query, block.entry, block.row + r, inputs.head_dim, to);
                for (Index d = 0; d < padded_dim; d++) to[d] = d < inputs.head_dim ? to[d] * units.scale : T(0);
            }
        }

        void scores(const Tile& at, T* out) {
            const Inputs& inputs = source.inputs;
            Index skipped = at.row - row;
            if (few) {
                T* products = keys + KEYS * padded_dim;
                dots(queries + skipped * padded_dim, padded_dim, WholeRows<T>(inputs.key, inputs.head_dim, at, keys), at.rows, at.keys,
                     products);
                transpose(products, Index{KEYS}, at.rows, at.keys, out, Index{QUERIES});
            } else {
                Left<T> left = rows_at(inputs.key, at, inputs.head_dim, keys);
                multiply(left.data, left.row, left.column, queries + skipped, Index{QUERIES}, out, Index{QUERIES}, at.keys,
                         static_cast<int>(inputs.head_dim), at.rows, false);
            }
            if (units.cap > 0) each_vector<T>(at, [&](int i) { store(out + i, hyperbolic_tangent<T>(load(out + i)) * units.cap); });
        }
    };
};

// Scores of ROWS x KEYS pairs at a time, as TanhScores and ReluScores compute them, transposed.
template <class T, class Scores>
class AdditiveTiles {
    const Inputs& inputs;
    Index scores_size;
    Scratch<T> memory;
    Scratch<Scores> table;

   public:
    AdditiveTiles(const Inputs& inputs, const Score& score, Index slots)
        : inputs(inputs), scores_size(Scores::size(inputs)), memory(slots * scores_size), table(slots) {
        for (Index slot = 0; slot < slots; slot++) new (table.data + slot) Scores(inputs, score, memory.data + slot * scores_size);
    }
    void begin(Index slot, Index entry) { table.data[slot].begin(entry); }

    class Reader {
        const AdditiveTiles& source;
        const Scores* from = nullptr;
        T *queries, *keys, *products;
        Index row = 0;
        T factor = 1;

       public:
        static Index size(const AdditiveTiles& source) {
            const Scores& any = source.table.data[0];
            return 2 * any.query_size() + any.key_size() + ROWS * KEYS;
        }
        Reader(const AdditiveTiles& source, T* memory)
            : source(source), queries(memory), keys(queries + 2 * source.table.data[0].query_size()),
              products(keys + source.table.data[0].key_size()) {}

        void begin(Index slot, const Tile& block, double times) {
            static_assert(QUERIES == 2 * ROWS);
            from = source.table.data + slot, row = block.row, factor = static_cast<T>(times);
            for (int r = 0; r < block.rows; r += ROWS)
                from->pack_queries(row + r, min_of(ROWS, block.rows - r), queries + r / ROWS * from->query_size());
        }

        void scores(const Tile& at, T* out) {
            from->pack_keys(at.key, at.keys, keys);
            int first = static_cast<int>(at.row - row), stop = first + at.rows;
            for (int r = first; r < stop;) {
                int half = r / ROWS, rows = min_of((half + 1) * ROWS, stop) - r;
                from->scores(queries + half * from->query_size() + (r - half * ROWS) * from->query_row(), rows, keys, at.keys,
                             products);
                transpose(products, Index{KEYS}, rows, at.keys, out + (r - first), Index{QUERIES}, factor);
                r += rows;
            }
        }
    };
};

// work(source) with the source of a call's scores, which has memory for so many entries.
template <class T, class Work>
static void with_score_tiles(const Inputs& inputs, const Score& score, Index slots, Work work) {
    if (score.form == Form::dot) {
        DotTiles<T> source(inputs, score, slots);
        work(source);
    } else if (score.activation <= Activation::sigmoid) {
        AdditiveTiles<T, TanhScores<T>> source(inputs, score, slots);
        work(source);
    } else {
        AdditiveTiles<T, ReluScores<T>> source(inputs, score, slots);
        work(source);
    }
}

}  // namespace overt::OVERT_LEVEL
