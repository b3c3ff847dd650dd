#include "linerate/trace/input/event_array.hpp"

#include <fmt/format.h>

#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/trace/input/json_repair.hpp"

namespace linerate::trace {

EventArray::EventArray(PaddedText text, const std::string& name, std::string_view what)
    : text_(std::move(text)) {
  Repairs repairs = repair_json(text_);
  if (const auto e = parser_.parse(text_.data(), text_.size(), false).get_array().get(events_))
    throw InputError(name, fmt::format("expected {}: {}", what, simdjson::error_message(e)));
  if (repairs.any())
    repair_note_ = fmt::format("{}: damaged JSON was repaired: {}", name, repairs.text());
  begins_anew_ = std::move(repairs.begins_anew);
}

}  // namespace linerate::trace
