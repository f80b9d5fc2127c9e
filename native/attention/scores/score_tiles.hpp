// Sources of transposed tiles of scores, for the normalizers that take any score.
//
// A source is called through virtual functions, once a tile of 4,096 pairs, so each normalizer's kernel is compiled only once.
#pragma once

#include <new>

#include "attention/programs/program_tiles.hpp"
#include "attention/scores/relu_scores.hpp"
#include "attention/scores/tanh_scores.hpp"
#include "attention/tiles/transposed_tile.hpp"

namespace overt::OVERT_LEVEL {

// One thread's reader. `begin` selects at most QUERIES queries of a slot's entry; `scores` writes out[c * QUERIES + r] = factor *
// f(query r, key c) for a tile of it. Lanes beyond the tile's last row are undefined.
template <class T>
class TileReader {
   public:
    virtual void begin(Index slot, const Tile& block, double factor) = 0;
    virtual void scores(const Tile& at, T* out) = 0;

   protected:
    ~TileReader() = default;
};

struct alignas(64) ReaderPlace {
    char bytes[1024];
};

// The source of a call, with memory for some batch entries at a time: `begin` selects one for a slot. `size`: a reader's amount of numbers.
template <class T>
class TileSource {
   public:
    virtual void begin(Index slot, Index entry) = 0;
    virtual Index reader_size() const = 0;
    virtual TileReader<T>& reader(ReaderPlace& place, T* memory) const = 0;

   protected:
    ~TileSource() = default;
};

// A source's own `Reader`, put into place.
template <class T, class Source>
class TilesOf : public TileSource<T> {
   public:
    Index reader_size() const final { return Source::Reader::size(self()); }
    TileReader<T>& reader(ReaderPlace& place, T* memory) const final {
        static_assert(sizeof(typename Source::Reader) <= sizeof(ReaderPlace));
        return *new (&place) typename Source::Reader(self(), memory);
    }

   protected:
    ~TilesOf() = default;

   private:
    const Source& self() const { return static_cast<const Source&>(*this); }
};

template <class T>
class DotTiles final : public TilesOf<T, DotTiles<T>> {
    const Inputs& inputs;
    const Score& score;

   public:
    DotTiles(const Inputs& inputs, const Score& score, Index) : inputs(inputs), score(score) {}
    void begin(Index, Index) final {}

    class Reader final : public TileReader<T> {
        const DotTiles& source;
        T *queries, *keys;
        Index row = 0, padded_dim;
        bool few = false;  // rows are then not transposed: products are sums over lanes
        Units<T> units;

       public:
        static Index size(const DotTiles& source) { return (QUERIES + KEYS) * padded<T>(source.inputs.head_dim) + KEYS * QUERIES; }
        Reader(const DotTiles& source, T* memory)
            : source(source), queries(memory), keys(queries + QUERIES * padded<T>(source.inputs.head_dim)),
              padded_dim(padded<T>(source.inputs.head_dim)), units(source.score, 0, 1) {}

        void begin(Index, const Tile& block, double factor) final {
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

        void scores(const Tile& at, T* out) final {
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
class AdditiveTiles final : public TilesOf<T, AdditiveTiles<T, Scores>> {
    const Inputs& inputs;
    Index scores_size;
    Scratch<T> memory;
    Scratch<Scores> table;

   public:
    AdditiveTiles(const Inputs& inputs, const Score& score, Index slots)
        : inputs(inputs), scores_size(Scores::size(inputs)), memory(slots * scores_size), table(slots) {
        for (Index slot = 0; slot < slots; slot++) new (table.data + slot) Scores(inputs, score, memory.data + slot * scores_size);
    }
    void begin(Index slot, Index entry) final { table.data[slot].begin(entry); }

    class Reader final : public TileReader<T> {
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

        void begin(Index slot, const Tile& block, double times) final {
            static_assert(QUERIES == 2 * ROWS);
            from = source.table.data + slot, row = block.row, factor = static_cast<T>(times);
            for (int r = 0; r < block.rows; r += ROWS)
                from->pack_queries(row + r, min_of(ROWS, block.rows - r), queries + r / ROWS * from->query_size());
        }

        void scores(const Tile& at, T* out) final {
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

template <class T>
class ProgramTiles final : public TilesOf<T, ProgramTiles<T>> {
    const Inputs& inputs;
    const Score& score;

   public:
    ProgramTiles(const Inputs& inputs, const Score& score, Index) : inputs(inputs), score(score) {}
    void begin(Index, Index) final {}

    class Reader final : public TileReader<T> {
        const Score& score;
        ProgramScores<T> scores_of;
        Index row = 0;
        Units<T> units;

       public:
        static Index size(const ProgramTiles& source) { return ProgramScores<T>::size(source.inputs, source.score); }
        Reader(const ProgramTiles& source, T* memory)
            : score(source.score), scores_of(source.inputs, source.score, memory), units(source.score, 0, 1) {}

        void begin(Index, const Tile& block, double factor) final {
            row = block.row, units = Units<T>(score, block.entry, factor);
            scores_of.begin(block, units);
        }
        void scores(const Tile& at, T* out) final { scores_of.tile(at, static_cast<int>(at.row - row), units, out); }
    };
};

// work(source) with the source of a call's scores, with memory for this many entries.
template <class T, class Work>
static void with_score_tiles(const Inputs& inputs, const Score& score, Index slots, Work work) {
    if (score.form == Form::dot) {
        DotTiles<T> source(inputs, score, slots);
        work(source);
    } else if (score.form == Form::program) {
        ProgramTiles<T> source(inputs, score, slots);
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
