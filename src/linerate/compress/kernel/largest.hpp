// The k largest magnitudes, exactly.
#pragma once

#include <cstddef>
#include <span>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/selection.hpp"

namespace linerate::compress {

/// Where the k largest magnitudes end, 1 <= k <= values.size(): three histograms of 11, 10 and 10
/// bits instead of a sort.
Cut cut_of_largest(std::span<const float> values, std::size_t k);

/// Makes v = gradient + residual and picks its k largest magnitudes, ties by lower index; exactly
/// k, zeros if nothing else is left. Mostly one pass, and the histograms of few: a sample says
/// which magnitudes are worth a look. The sample decides on time alone, never on the answer.
void add_and_select_largest(const Input& input, std::size_t k, Selection& out);
/// The same for a v that is there.
void select_largest(std::span<const float> v, std::size_t k, Selection& out);

}  // namespace linerate::compress
