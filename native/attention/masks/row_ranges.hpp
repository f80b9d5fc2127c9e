// Masks whose values show that each row may attend to one range of keys: padding, causal tensors, packed documents.
#pragma once

#include <list>
#include <vector>

#include "kernels.hpp"

namespace overt {

// Reads a mask's program once for a call. Bool tensors and documents become ranges if every row is one range of keys, as do
// combinations of ranges; all other steps are unchanged. Data shared by entries are read once. Owns the ranges that it creates.
class RowRanges {
    Index entries, queries, keys;
    std::list<std::vector<Index>> memory;
    std::vector<MaskStep> steps;

   public:
    RowRanges(const Mask& mask, Index entries, Index queries, Index keys);
    Mask mask() const { return {steps.data(), static_cast<int>(steps.size())}; }

   private:
    void append(const MaskStep& step);
    template <class Sources, class Row>
    bool ranges_of(const Sources& sources, Row row, MaskStep& result);
    bool dense(const Matrix& pairs, MaskStep& result);
    bool documents(const Matrix& query_ids, const Matrix& key_ids, MaskStep& result);
    bool combined(const MaskStep& left, const MaskStep& right, bool both, MaskStep& result);
    bool inverted(const MaskStep& inner, MaskStep& result);
};

}  // namespace overt
