// Looks for the end of an event as text, without parsing: "}", a comma, "{" and a key that events
// have. Parsing would have to begin at the start of the file. A text scan can begin anywhere, which
// is what lets several threads read one file.
#include "linerate/trace/kineto/slices.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace linerate::trace {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::array<std::string_view, 8> kEventKeys = {"ph",  "cat", "name", "pid",
                                                        "tid", "ts",  "dur",  "args"};

/// The first position at or after `at` that is no white space; text.size() at the end.
std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && kSpace.find(text[at]) != std::string_view::npos) ++at;
  return at;
}

bool is_at(std::string_view text, std::size_t at, char c) {
  return at < text.size() && text[at] == c;
}

bool event_key_at(std::string_view text, std::size_t at) {
  return is_at(text, at, '"') &&
         std::any_of(kEventKeys.begin(), kEventKeys.end(), [&](std::string_view key) {
           return text.substr(at + 1, key.size()) == key && is_at(text, at + 1 + key.size(), '"');
         });
}

}  // namespace

Patch::Patch(PaddedText& text, std::size_t at, std::string_view bytes)
    : at_(text.data() + at), saved_(at_, bytes.size()) {
  std::memcpy(at_, bytes.data(), bytes.size());
}
Patch::~Patch() { std::memcpy(at_, saved_.data(), saved_.size()); }

std::optional<EventList> find_event_list(std::string_view text) {
  const std::size_t root = skip_space(text, 0);
  if (is_at(text, root, '[')) return EventList{.first = root + 1};
  constexpr std::string_view kKey = "\"traceEvents\"";
  const std::size_t key = text.substr(0, 1 << 20).find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  const std::size_t colon = skip_space(text, key + kKey.size());
  if (!is_at(text, colon, ':')) return std::nullopt;
  const std::size_t bracket = skip_space(text, colon + 1);
  if (!is_at(text, bracket, '[')) return std::nullopt;
  return EventList{.first = bracket + 1, .inside_root = true};
}

std::size_t comma_between_events(std::string_view text, std::size_t from) {
  for (std::size_t at = from; (at = text.find('}', at)) != std::string_view::npos; ++at) {
    const std::size_t comma = skip_space(text, at + 1);
    if (!is_at(text, comma, ',')) continue;
    const std::size_t brace = skip_space(text, comma + 1);
    if (is_at(text, brace, '{') && event_key_at(text, skip_space(text, brace + 1))) return comma;
  }
  return std::string_view::npos;
}

std::vector<EventRange> cut_events(std::string_view text, EventList list, std::size_t parts) {
  std::vector<EventRange> ranges = {{list.first, text.size()}};
  const std::size_t length = (text.size() - list.first) / std::max<std::size_t>(1, parts);
  while (ranges.size() < parts) {
    const std::size_t from = ranges.back().from + length;
    const std::size_t comma = comma_between_events(text, from);
    if (comma == std::string_view::npos) break;
    ranges.back().to = comma;
    ranges.push_back({comma + 1, text.size()});
  }
  return ranges;
}

}  // namespace linerate::trace
