#include "linerate/cost/estimate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "linerate/core/error.hpp"

namespace linerate::cost {

AddTable::AddTable(std::span<const doc::AddCost> table) {
  if (table.empty()) return;
  for (const doc::AddCost& row : table)
    if (!(row.bytes >= 0 && row.seconds >= 0) || std::isinf(row.bytes) || std::isinf(row.seconds))
      throw UsageError(fmt::format("add cost: expected bytes and seconds from 0, found {} B: {} s",
                                   row.bytes, row.seconds));
  pieces_.reserve(table.size() + 1);
  pieces_.push_back({table.front().bytes, table.front().seconds, 0});
  for (std::size_t i = 1; i < table.size(); ++i) {
    const doc::AddCost& a = table[i - 1];
    const doc::AddCost& b = table[i];
    if (!(b.bytes > a.bytes))
      throw UsageError(fmt::format("add cost: expected ascending sizes, found {} B after {} B",
                                   b.bytes, a.bytes));
    const double slope = (b.seconds - a.seconds) / (b.bytes - a.bytes);
    pieces_.push_back({b.bytes, a.seconds - slope * a.bytes, slope});
  }
  pieces_.push_back({std::numeric_limits<double>::infinity(), table.back().seconds, 0});
}

}  // namespace linerate::cost
