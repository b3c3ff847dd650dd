// The grammar of strategies:
//   strategy  = component { "+" component }
//   component = name [ "(" option { "," option } ")" ]
//   option    = key "=" value | value | component
// '+' and ',' separate only outside parentheses, so a component may be an option:
// auto(topk(density=0.01), fp16).
#include "linerate/doc/strategy.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::doc {
namespace {

bool is_name(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
          c == '_'))
      return false;
  return true;
}

// `text` is a view into `whole`, so errors can name the column.
Component parse_component(std::string_view text, std::string_view whole) {
  const auto fail = [&](const std::string& message) {
    throw UsageError(fmt::format("strategy \"{}\", column {}: {}", whole,
                                 text.data() - whole.data() + 1, message));
  };
  Component component;
  const std::size_t open = text.find('(');
  const std::string_view name = trim(text.substr(0, open));
  if (!is_name(name))
    fail(fmt::format("expected a name such as ddp or codec(ratio=8), found \"{}\"", text));
  component.name = name;
  if (open == std::string_view::npos) return component;
  if (text.back() != ')') fail(fmt::format("expected \")\" at the end of \"{}\"", text));
  const std::string_view inside = trim(text.substr(open + 1, text.size() - open - 2));
  if (inside.empty()) return component;
  for (const std::string& option : split_outside_parentheses(inside, ',')) {
    const std::size_t equals = option.find('=');
    const std::string key =
        equals == std::string::npos ? "" : std::string(trim(option.substr(0, equals)));
    const std::string value(
        trim(equals == std::string::npos ? option : std::string_view(option).substr(equals + 1)));
    // A value may be a component itself, as in auto(topk(density=0.01)).
    if (option.find('(') < equals) {
      static_cast<void>(parse_component(option, option));
      component.options.emplace_back("", std::string(trim(option)));
      continue;
    }
    const bool nests = option.find_first_of("()") != std::string::npos;
    if (nests || value.empty() || (equals != std::string::npos && !is_name(key)))
      fail(fmt::format("expected option=value, found \"{}\"", option));
    if (!key.empty() && component.find(key)) fail(fmt::format("option \"{}\" is given twice", key));
    component.options.emplace_back(key, value);
  }
  return component;
}

// The pieces between '+' outside parentheses, as views into `text`.
std::vector<std::string_view> pieces(std::string_view text) {
  std::vector<std::string_view> all;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == '+' && depth == 0)) {
      all.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')' && --depth < 0) {
      throw UsageError(fmt::format("strategy \"{}\", column {}: \")\" without \"(\"", text, i + 1));
    }
  }
  if (depth != 0)
    throw UsageError(fmt::format("strategy \"{}\": \"(\" without \")\"; close it", text));
  return all;
}

}  // namespace

const std::string* Component::find(std::string_view key) const {
  for (const auto& [k, v] : options)
    if (k == key) return &v;
  return nullptr;
}

Strategy parse_strategy(std::string_view text) {
  Strategy strategy;
  bool first = true;
  for (const std::string_view piece : pieces(text)) {
    if (piece.empty() && trim(text).empty())
      throw UsageError("strategy: expected a name such as ddp or dear+codec(ratio=8), found none");
    if (piece.empty())
      throw UsageError(fmt::format("strategy \"{}\": a name is missing next to \"+\"", text));
    Component component = parse_component(piece, text);
    if (first)
      strategy.exchange = std::move(component);
    else
      strategy.extras.push_back(std::move(component));
    first = false;
  }
  return strategy;
}

std::vector<Strategy> parse_strategies(std::string_view text) {
  std::vector<Strategy> all;
  for (const std::string& part : split_outside_parentheses(text, ','))
    all.push_back(parse_strategy(part));
  return all;
}

Component parse_component(std::string_view text) { return parse_component(text, text); }

std::string to_text(const Component& component) {
  if (component.options.empty()) return component.name;
  std::vector<std::string> options;
  for (const auto& [key, value] : component.options)
    options.push_back(key.empty() ? value : key + "=" + value);
  return component.name + "(" + join(options, ", ") + ")";
}

std::string to_text(const Strategy& strategy) {
  std::string text = to_text(strategy.exchange);
  for (const Component& extra : strategy.extras) text += "+" + to_text(extra);
  return text;
}

}  // namespace linerate::doc
