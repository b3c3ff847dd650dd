// The k largest magnitudes, exactly.
#pragma once

#include <cstddef>
#include <span>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/selection.hpp"

namespace linerate::compress {

/// The end of the k largest magnitudes, 1 <= k <= values.size(). Three histograms of 11, 10 and 10
/// bits are made instead of a sort.
Cut cut_of_largest(std::span<const float> values, std::size_t k);

/// Makes v = gradient + residual and picks its k largest magnitudes, ties by lower index. They are
/// exactly k, with zeros among them if nothing else is left. Mostly this takes one pass over v, and
/// histograms of a few candidates. A sample chooses the candidates, so it decides on time alone,
/// never on the answer.
void add_and_select_largest(const Input& input, std::size_t k, Selection& out);
/// The same for a v that is there.
void select_largest(std::span<const float> v, std::size_t k, Selection& out);

}  // namespace linerate::compress
