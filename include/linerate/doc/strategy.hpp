// Strategy: how gradients are exchanged, compressed and preconditioned, as one line of text.
// Thread safety: values.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linerate::doc {

/// name(option=value, ...). Positional values keep an empty key: kfac(spd) has {"", "spd"}.
struct Component {
  std::string name;                                          // a line of `linerate list`
  std::vector<std::pair<std::string, std::string>> options;  // key and text, as written

  /// The option's text, or nullptr.
  const std::string* find(std::string_view key) const;
  bool operator==(const Component&) const = default;
};

/// "ddp", "ddp(bucket=25MiB)", "ddp+powersgd(rank=4)", "ddp+kfac(spd)": the exchange first, the
/// others after '+'. Pure grammar; which names and options exist is the planner's knowledge.
struct Strategy {
  Component exchange;             // how gradients travel
  std::vector<Component> extras;  // compressor, codec, K-FAC
};

/// Throws UsageError with the column of what could not be read.
[[nodiscard]] Strategy parse_strategy(std::string_view text);
/// Several, separated by commas outside parentheses.
[[nodiscard]] std::vector<Strategy> parse_strategies(std::string_view text);
/// "name(option=value, ...)", one component of a strategy or an operation of a Plan. Throws
/// UsageError.
[[nodiscard]] Component parse_component(std::string_view text);
/// The canonical line; parse_strategy(to_text(s)) equals s.
[[nodiscard]] std::string to_text(const Strategy&);
/// The canonical text of one component.
[[nodiscard]] std::string to_text(const Component&);

}  // namespace linerate::doc
