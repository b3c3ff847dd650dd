// A microsecond since the epoch with three decimals needs 61 bits, and a double has 53. Times are
// therefore read as whole nanoseconds. Digits are collected in 64 bits. The point, the exponent and
// the scale become one power of ten, which is applied at the end.
//
// Example: "1734001122334455.678" at scale 3. Nineteen digits give 1734001122334455678, three of
// them after the point. The exponent is 3 - 3 = 0, so nothing is left to multiply or to round.
#include "linerate/trace/input/input_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::trace {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The fast path for nearly every number of a trace: up to 19 digits, at most `scale` of them after
/// the point. Such a number neither overflows 64 bits nor is rounded. Negative: it is another one.
std::int64_t parse_plain(std::string_view text, int scale) {
  if (text.size() > 20) return -1;
  std::uint64_t value = 0;
  int digits = 0, behind = -1;  // -1 until the point has come
  for (const char c : text) {
    if (is_digit(c)) {
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
      ++digits;
      behind += behind >= 0 ? 1 : 0;
    } else if (c == '.' && behind < 0) {
      behind = 0;
    } else {
      return -1;
    }
  }
  const int missing = scale - std::max(behind, 0);
  if (digits == 0 || missing < 0 || digits + missing > 19) return -1;
  for (int i = 0; i < missing; ++i) value *= 10;
  return static_cast<std::int64_t>(value);
}

}  // namespace

/// Digits that no longer fit into 63 bits are dropped, and the first of them decides about
/// rounding. If dropped digits were before the point, the number is too large, unless its exponent
/// makes it smaller.
std::optional<std::int64_t> parse_scaled(std::string_view text, int scale) {
  text = unquoted(text);
  if (const std::int64_t plain = parse_plain(text, scale); plain >= 0) return plain;
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  // Digits after the nineteenth cannot matter to 63 bits if they are after the point; leading zeros
  // do not count.
  constexpr std::uint64_t kLimit = 9'223'372'036'854'775'807ull;
  std::uint64_t value = 0;
  bool any = false, point = false, round_up = false, dropped = false;
  std::size_t i = 0;
  int exponent = scale;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(c)) break;
    any = true;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (dropped || value > (kLimit - digit) / 10) {
      round_up = dropped ? round_up : digit >= 5;
      dropped = true;
      exponent += point ? 0 : 1;
      continue;
    }
    value = value * 10 + digit;
    exponent -= point ? 1 : 0;
  }
  if (!any) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    int power = 0;
    const std::size_t from = i + 1 + (i + 1 < text.size() && text[i + 1] == '+' ? 1 : 0);
    const auto [end, status] =
        std::from_chars(text.data() + from, text.data() + text.size(), power);
    if (status != std::errc{} || power < -10000 || power > 10000) return std::nullopt;
    exponent += power;
    i = to_index(end - text.data());
  }
  if (i != text.size()) return std::nullopt;
  if (dropped && exponent > 0) return std::nullopt;  // a digit before the point did not fit
  for (; exponent > 0 && value != 0; --exponent) {
    if (value > kLimit / 10) return std::nullopt;
    value *= 10;
  }
  for (; exponent < 0 && value != 0; ++exponent) {
    round_up = value % 10 >= 5;
    value /= 10;
  }
  if (round_up && value < kLimit) ++value;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  text = unquoted(text);
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The mender is a small automaton over the text, inside or outside of a string, with a stack of
// open brackets. Each repair keeps the length of the text, so it can be made in place; only the end
// of a truncated file changes it.
//
// - A raw line break in a string becomes a blank, an unescaped quote an apostrophe.
// - Bytes that are no UTF-8 become '?'.
// - A file that ends early is cut after its last whole event and closed.
// - A list that begins anew in the same file is joined to the list before.
//
// Example of the last. Horovod stopped in an event and was started again, and the file reads
// `[{"a":1},{"b":` and then, on a new line, `[{"c":3}`. The half event is blanked and the second
// bracket becomes a comma: `[{"a":1}` , `{"c":3}`. begins_anew notes that one element was before
// it.

namespace {

/// Length of the UTF-8 sequence at p, 0 when it is none.
std::size_t utf8_length(const unsigned char* p, std::size_t left) {
  const unsigned char c = p[0];
  const std::size_t n = c < 0x80                ? 1
                        : c >= 0xc2 && c < 0xe0 ? 2
                        : c >= 0xe0 && c < 0xf0 ? 3
                        : c >= 0xf0 && c < 0xf5 ? 4
                                                : 0;
  if (n == 0 || n > left) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((p[i] & 0xc0) != 0x80) return 0;
  if (c == 0xe0 && p[1] < 0xa0) return 0;   // overlong
  if (c == 0xed && p[1] >= 0xa0) return 0;  // surrogate
  if (c == 0xf0 && p[1] < 0x90) return 0;   // overlong
  if (c == 0xf4 && p[1] >= 0x90) return 0;  // above U+10FFFF
  return n;
}

/// One pass over a text. `good_end_` is the position after the last whole element that a cut may
/// follow, `good_open_` the brackets that are open there.
class Mender {
 public:
  explicit Mender(PaddedText& text) : text_(text), p_(text.data()), n_(text.size()) {}

  Repairs run() {
    for (std::size_t i = 0; i < n_;) {
      const char c = p_[i];
      i = c == '"' ? string(i) : outside(i);
      if (!is_json_blank(c)) last_ = c;
    }
    if (!open_.empty() || in_string_) close();
    return repairs_;
  }

 private:
  /// Handles a character outside of strings, and returns the position after it. It keeps the stack
  /// of brackets, and notes where a cut would be safe.
  std::size_t outside(std::size_t i) {
    const char c = p_[i];
    is_list_ = is_list_ || (last_ == '\0' && c == '[');
    if (c == '[' && begins_anew(i)) return join_to_list(i);
    if (c == '{' || c == '[') {
      open_.push_back(c);
    } else if (c == '}' || c == ']') {
      if (!open_.empty()) open_.pop_back();
      elements_ += c == '}' && open_ == "[";
      // The place to cut at: after a whole element of a container no deeper than the array of
      // events.
      if (open_.size() <= 2) good_end_ = i + 1, good_open_ = open_;
    } else if (static_cast<unsigned char>(c) >= 0x80 ||
               (static_cast<unsigned char>(c) < 0x20 && !is_json_blank(c))) {
      p_[i] = ' ';
      ++repairs_.bad_utf8;
    }
    return i + 1;
  }

  /// Handles a string from its opening quote, and returns the position after its closing one.
  std::size_t string(std::size_t i) {
    in_string_ = true;
    for (++i; i < n_;) {
      const auto c = static_cast<unsigned char>(p_[i]);
      if (c == '\\') {
        i += 2;
      } else if (c == '"') {
        if (closes(i)) return in_string_ = false, i + 1;
        p_[i++] = '\'';
        ++repairs_.inner_quotes;
      } else if (c == '\n' && is_list_ && i + 1 < n_ && is_own_line(i + 1)) {
        in_string_ = false;
        return join_to_list(i + 1);
      } else if (c < 0x20) {
        p_[i++] = ' ';
        ++repairs_.control_characters;
      } else if (const std::size_t length =
                     utf8_length(reinterpret_cast<unsigned char*>(p_ + i), n_ - i)) {
        i += length;
      } else {
        p_[i++] = '?';
        ++repairs_.bad_utf8;
      }
    }
    return n_;
  }

  /// Whether the quote ends its string. In JSON only , : } ] or the end can follow a string. Before
  /// anything else the quote was meant to be inside.
  bool closes(std::size_t i) const {
    std::size_t next = i + 1;
    while (next < n_ && is_json_blank(p_[next])) ++next;
    return next == n_ || p_[next] == ',' || p_[next] == ':' || p_[next] == '}' || p_[next] == ']';
  }

  /// Whether a list of events begins anew at this '['. It does if no '[' can stand there in a list
  /// of events. After a colon one can, so there it must begin a line, as a writer's does.
  bool begins_anew(std::size_t i) const {
    if (!is_list_ || last_ == '\0') return false;
    if (last_ == ':') return is_own_line(i);
    return open_.size() <= 1 || (last_ == ',' ? open_.back() == '{' : last_ != '[');
  }
  /// A '[' at the beginning of a line, with nothing or an event after it.
  bool is_own_line(std::size_t i) const {
    return i + 1 < n_ && p_[i] == '[' && p_[i - 1] == '\n' &&
           (p_[i + 1] == '\n' || p_[i + 1] == '\r' || p_[i + 1] == '{');
  }

  /// Drops the event in which the list was cut; the events that follow become its elements.
  std::size_t join_to_list(std::size_t i) {
    if (good_open_.empty() && good_end_ > 0) --good_end_;  // its end
    std::memset(p_ + good_end_, ' ', i + 1 - good_end_);
    const bool event_is_open = good_open_.size() == 2 && good_end_ < i;  // after its arguments
    if (event_is_open) p_[good_end_] = '}', ++elements_;
    if (elements_ > 0) p_[i] = ',';
    open_ = good_open_ = "[";
    repairs_.begins_anew.push_back(elements_);
    return i + 1;
  }

  void close() {
    repairs_.truncated = true;
    std::string tail;
    for (std::size_t k = good_open_.size(); k-- > 0;) tail += good_open_[k] == '{' ? '}' : ']';
    repairs_.cut_bytes = n_ - good_end_;
    text_.resize(good_end_);
    text_.resize(good_end_ + tail.size());
    std::memcpy(text_.data() + good_end_, tail.data(), tail.size());
  }

  PaddedText& text_;
  char* p_;
  std::size_t n_;
  bool in_string_ = false, is_list_ = false;
  char last_ = '\0';          // outside strings, of those that are no blanks
  std::size_t elements_ = 0;  // whole ones of a list
  std::string open_, good_open_;
  std::size_t good_end_ = 0;
  Repairs repairs_;
};

}  // namespace

std::string Repairs::text() const {
  std::vector<std::string> parts;
  if (control_characters)
    parts.push_back(fmt::format("{} control characters inside strings", control_characters));
  if (inner_quotes)
    parts.push_back(fmt::format("{} unescaped quotes inside strings", inner_quotes));
  if (bad_utf8) parts.push_back(fmt::format("{} bytes that are not UTF-8", bad_utf8));
  if (!begins_anew.empty())
    parts.push_back(
        fmt::format("a list that begins again {} times in the same file", begins_anew.size()));
  if (truncated)
    parts.push_back(fmt::format("the file ends early ({} bytes after the last whole event dropped)",
                                cut_bytes));
  return join(parts, ", ");
}

Repairs repair_json(PaddedText& text) { return Mender(text).run(); }

}  // namespace linerate::trace
