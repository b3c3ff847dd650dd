// A few f64 numbers that every rank adds its own to: packed, all-reduced, read. Private to plan.
#pragma once

#include <cstdint>

#include "linerate/plan/passes.hpp"

namespace linerate::plan {

struct SummedNumbers {
  doc::Task pack, sum, take;  // in no lane yet, of one new payload
};
SummedNumbers summed_numbers(doc::Content content, std::int64_t elements, const char* pack,
                             const char* take, StepDraft& step);

}  // namespace linerate::plan
