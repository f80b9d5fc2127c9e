#include "attention/masks/row_ranges.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace overt {
namespace {

struct Range {
    Index low, high;
    bool empty() const { return low >= high; }
};

template <class T>
const T* start_of(const Matrix& matrix, Index entry) {
    return static_cast<const T*>(matrix.data) + matrix.offsets[entry];
}

// A row of a step that is ranges, with edges of any value.
Range range_of(const MaskStep& ranges, Index entry, Index row, Index keys) {
    Index low = start_of<Index>(ranges.first, entry)[row * ranges.first.row];
    Index high = start_of<Index>(ranges.second, entry)[row * ranges.second.row];
    return {std::clamp<Index>(low, 0, keys), std::clamp<Index>(high, 0, keys)};
}

// The first non-zero byte; `count` if all are zero.
Index first_nonzero(const std::uint8_t* bytes, Index count) {
    Index i = 0;
    for (; i + 32 <= count; i += 32) {
        std::uint64_t words[4];
        std::memcpy(words, bytes + i, sizeof words);
        if (words[0] | words[1] | words[2] | words[3]) break;
    }
    while (i < count && !bytes[i]) i++;
    return i;
}

Index first_zero(const std::uint8_t* bytes, Index count) {
    const void* found = count ? std::memchr(bytes, 0, static_cast<std::size_t>(count)) : nullptr;
    return found ? static_cast<const std::uint8_t*>(found) - bytes : count;
}

// The keys that a row of bools allows, if they are one range.
bool range_of_row(const std::uint8_t* row, Index step, Index keys, Range& range) {
    if (step == 1) {
        range.low = first_nonzero(row, keys);
        range.high = range.low + first_zero(row + range.low, keys - range.low);
        return first_nonzero(row + range.high, keys - range.high) == keys - range.high;
    }
    if (step == 0) {
        range = {0, keys && *row ? keys : 0};
        return true;
    }
    Index key = 0;
    while (key < keys && !row[key * step]) key++;
    range.low = key;
    while (key < keys && row[key * step]) key++;
    range.high = key;
    while (key < keys && !row[key * step]) key++;
    return key == keys;
}

// The documents of a row of keys. Consecutive keys of one document are a part; a document in several parts is no range.
class Parts {
    struct Part {
        Index id, low, high;
    };
    std::vector<Part> parts;
    std::size_t last = 0;  // the latest result: the next query probably has the same document, or the following one

   public:
    Parts(const Index* ids, Index step, Index keys) {
        bool ascending = true;
        for (Index key = 0; key < keys; key++) {
            Index id = ids[key * step];
            if (id < 0) continue;
            if (!parts.empty() && parts.back().id == id && parts.back().high == key) {
                parts.back().high++;
                continue;
            }
            ascending = ascending && (parts.empty() || parts.back().id < id);
            parts.push_back({id, key, key + 1});
        }
        auto before = [](const Part& a, const Part& b) { return a.id < b.id; };
        if (!ascending) std::sort(parts.begin(), parts.end(), before);
    }

    bool range_of(Index id, Range& range) {
        range = {0, 0};
        if (id < 0 || parts.empty()) return true;
        if (parts[last].id != id && last + 1 < parts.size()) last++;
        if (parts[last].id != id) {
            auto before = [](const Part& part, Index wanted) { return part.id < wanted; };
            auto found = std::lower_bound(parts.begin(), parts.end(), id, before);
            if (found == parts.end() || found->id != id) return true;
            last = static_cast<std::size_t>(found - parts.begin());
        }
        bool alone = (last == 0 || parts[last - 1].id != id) && (last + 1 == parts.size() || parts[last + 1].id != id);
        range = {parts[last].low, parts[last].high};
        return alone;
    }
};

}  // namespace

RowRanges::RowRanges(const Mask& mask, Index entries, Index queries, Index keys) : entries(entries), queries(queries), keys(keys) {
    for (int s = 0; s < mask.count; s++) append(mask.steps[s]);
}

// Appends a step, or replaces the steps that it combines by ranges.
void RowRanges::append(const MaskStep& step) {
    auto ranged = [&](std::size_t from_end) {
        return steps.size() >= from_end && steps[steps.size() - from_end].step == Step::ranges;
    };
    MaskStep result = step;
    bool found = false;
    std::size_t replaced = 0;
    if (step.step == Step::dense) {
        found = dense(step.first, result);
    } else if (step.step == Step::documents) {
        found = documents(step.first, step.second, result);
    } else if (step.step == Step::inverse && ranged(1)) {
        found = inverted(steps.back(), result), replaced = 1;
    } else if ((step.step == Step::both || step.step == Step::either) && ranged(1) && ranged(2)) {
        // Two steps that are ranges are the two results that this one combines.
        found = combined(steps[steps.size() - 2], steps.back(), step.step == Step::both, result), replaced = 2;
    }
    if (found) steps.resize(steps.size() - replaced);
    steps.push_back(found ? result : step);
}

// row(entry, i, range) computes row i's range, and whether there is one. Entries with the same offsets in all sources share their result.
template <class Sources, class Row>
bool RowRanges::ranges_of(const Sources& sources, Row row, MaskStep& result) {
    bool one_row = true;
    for (const Matrix* source : sources) one_row = one_row && source->row == 0;
    auto same = [&](Index a, Index b) {
        return std::all_of(sources.begin(), sources.end(), [&](const Matrix* each) { return each->offsets[a] == each->offsets[b]; });
    };
    const Index rows = one_row ? std::min<Index>(queries, 1) : queries;
    std::vector<Index> offsets, lows, highs;
    Index period = 0;  // the number of entries after which the first one repeats
    for (Index entry = 0; entry < entries; entry++) {
        if (period == 0 && entry > 1 && same(entry, 0)) period = entry;
        Index like = entry > 0 && same(entry, entry - 1) ? entry - 1 : period && same(entry, entry - period) ? entry - period : entry;
        if (like < entry) {
            offsets.push_back(offsets[static_cast<std::size_t>(like)]);
            continue;
        }
        offsets.push_back(static_cast<Index>(lows.size()));
        for (Index i = 0; i < rows; i++) {
            Range range{0, 0};
            if (!row(entry, i, range)) return false;
            lows.push_back(range.empty() ? 0 : range.low), highs.push_back(range.empty() ? 0 : range.high);
        }
    }
    memory.push_back(std::move(offsets));
    const Index *starts = memory.back().data(), step = one_row ? 0 : 1;
    memory.push_back(std::move(lows));
    const Index* low = memory.back().data();
    memory.push_back(std::move(highs));
    result = {Step::ranges, {low, Kind::integer, starts, step, step}, {memory.back().data(), Kind::integer, starts, step, step}};
    return true;
}

bool RowRanges::dense(const Matrix& pairs, MaskStep& result) {
    auto row = [&](Index entry, Index i, Range& range) {
        return range_of_row(start_of<std::uint8_t>(pairs, entry) + i * pairs.row, pairs.column, keys, range);
    };
    return ranges_of(std::array{&pairs}, row, result);
}

bool RowRanges::documents(const Matrix& query_ids, const Matrix& key_ids, MaskStep& result) {
    Parts parts(nullptr, 0, 0);
    auto row = [&](Index entry, Index i, Range& range) {
        if (i == 0) parts = Parts(start_of<Index>(key_ids, entry), key_ids.column, keys);
        return parts.range_of(start_of<Index>(query_ids, entry)[i * query_ids.row], range);
    };
    // All keys are read in every row, so the keys' stride does not depend on the rows.
    Matrix keys_of_entry = key_ids;
    keys_of_entry.row = 0;
    return ranges_of(std::array<const Matrix*, 2>{&query_ids, &keys_of_entry}, row, result);
}

bool RowRanges::combined(const MaskStep& left, const MaskStep& right, bool both, MaskStep& result) {
    auto row = [&](Index entry, Index i, Range& range) {
        Range a = range_of(left, entry, i, keys), b = range_of(right, entry, i, keys);
        if (both) {
            range = {std::max(a.low, b.low), std::min(a.high, b.high)};
            return true;
        }
        range = a.empty() ? b : b.empty() ? a : Range{std::min(a.low, b.low), std::max(a.high, b.high)};
        return a.empty() || b.empty() || (a.low <= b.high && b.low <= a.high);
    };
    return ranges_of(std::array{&left.first, &left.second, &right.first, &right.second}, row, result);
}

// All keys except a range that includes the first key or the last one.
bool RowRanges::inverted(const MaskStep& inner, MaskStep& result) {
    auto row = [&](Index entry, Index i, Range& range) {
        Range masked = range_of(inner, entry, i, keys);
        range = masked.empty() ? Range{0, keys} : masked.low == 0 ? Range{masked.high, keys} : Range{0, masked.low};
        return masked.empty() || masked.low == 0 || masked.high == keys;
    };
    return ranges_of(std::array{&inner.first, &inner.second}, row, result);
}

}  // namespace overt
