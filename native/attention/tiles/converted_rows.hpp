// Keys and values of half precision, converted to the kernel's numbers once for all blocks of queries.
#pragma once

#include "attention/threads.hpp"

namespace overt::OVERT_LEVEL {

// A page needs no half precision.
#ifdef OVERT_SMALL
constexpr bool CONVERTS = false;
#else
constexpr bool CONVERTS = true;
#endif

// Rows by key of some entries at a time.
template <class T>
class ConvertedRows {
    const Inputs& inputs;
    const Matrix from;
    const Index columns;
    const bool converting;
    Scratch<Index> offsets;
    Scratch<T> numbers;

   public:
    // For at most `at_once` entries; 0: rows are not converted.
    ConvertedRows(const Inputs& inputs, const Matrix& from, Index columns, Index at_once)
        : inputs(inputs), from(from), columns(columns), converting(at_once > 0), offsets(at_once ? inputs.batch : 0),
          numbers(at_once * inputs.keys * columns) {}

    Matrix matrix() const { return converting ? Matrix{numbers.data, KIND<T>, offsets.data, columns, 1} : from; }

    // Converts the rows of these entries. Consecutive entries that share rows, such as the heads of a group, share the copy.
    void begin(const Team& team, Index first, Index entries) {
        if (!converting) return;
        auto shares = [&](Index entry) { return entry > first && from.offsets[entry] == from.offsets[entry - 1]; };
        for (Index entry = first, slot = -1; entry < first + entries; entry++) {
            slot += !shares(entry);
            offsets.data[entry] = slot * inputs.keys * columns;
        }
        const Index tiles = count(inputs.keys, KEYS);
        team.each(entries * tiles, [&](Index item, int) {
            const Index entry = first + item / tiles, tile = item % tiles * KEYS;
            for (Index key = tile; !shares(entry) && key < min_of(tile + KEYS, inputs.keys); key++)
                read_row(from, entry, key, columns, numbers.data + offsets.data[entry] + key * columns);
        });
    }
};

}  // namespace overt::OVERT_LEVEL
