// Reads and writes numbers with units, and the small functions of texts that many parts share. A
// number without a unit is refused, and the message names the likely ones. A guess could be wrong
// by much: a rate of "10" may be Gbit/s or GB/s.
#include "linerate/core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text_table.hpp"

namespace linerate {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kSizes = {Unit{"B", 1},         Unit{"KB", 1e3},
                               Unit{"kB", 1e3},      Unit{"MB", 1e6},
                               Unit{"GB", 1e9},      Unit{"TB", 1e12},
                               Unit{"KiB", 1024},    Unit{"MiB", 1 << 20},
                               Unit{"GiB", 1 << 30}, Unit{"TiB", 1099511627776.0}};
constexpr std::array kRates = {
    Unit{"bit/s", 0.125},  Unit{"kbit/s", 125},   Unit{"Kbit/s", 125}, Unit{"Mbit/s", 125e3},
    Unit{"Gbit/s", 125e6}, Unit{"Tbit/s", 125e9}, Unit{"bps", 0.125},  Unit{"kbps", 125},
    Unit{"Mbps", 125e3},   Unit{"Gbps", 125e6},   Unit{"Tbps", 125e9}, Unit{"b/s", 0.125},
    Unit{"kb/s", 125},     Unit{"Mb/s", 125e3},   Unit{"Gb/s", 125e6}, Unit{"Tb/s", 125e9},
    Unit{"B/s", 1},        Unit{"kB/s", 1e3},     Unit{"KB/s", 1e3},   Unit{"MB/s", 1e6},
    Unit{"GB/s", 1e9},     Unit{"TB/s", 1e12},    Unit{"KiB/s", 1024}, Unit{"MiB/s", 1 << 20},
    Unit{"GiB/s", 1 << 30}};
constexpr std::array kTimes = {Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"µs", 1e-6},
                               Unit{"ms", 1e-3}, Unit{"s", 1},     Unit{"min", 60},
                               Unit{"h", 3600}};

/// For messages about a kind of value: its name, an example, and the units that people most often
/// leave out.
struct Kind {
  std::string_view what, example;
  std::vector<std::string_view> usual;
  bool may_be_zero = true;
};

double parse_with_unit(std::string_view text, std::span<const Unit> units, const Kind& kind) {
  const auto& [what, example, usual, may_be_zero] = kind;
  const std::string_view whole = trim(text);
  double number = 0;
  const auto [end, status] = std::from_chars(whole.data(), whole.data() + whole.size(), number);
  const std::string_view unit = trim(whole.substr(to_index(end - whole.data())));
  if (status != std::errc{} || !std::isfinite(number) || number < 0)
    throw UsageError(fmt::format("expected {}{} such as {}, found \"{}\"", what,
                                 number < 0 ? " that is not below 0," : "", example, text));
  for (const Unit& u : units)
    if (u.name == unit) return number * u.factor;
  if (unit.empty() && number == 0 && !may_be_zero)
    throw UsageError(
        fmt::format("expected {} above 0 such as {}, found \"{}\"", what, example, text));
  if (unit.empty()) {
    std::vector<std::string> meant;
    for (const std::string_view u : usual) meant.push_back(fmt::format("{}{}", whole, u));
    throw UsageError(fmt::format("expected {} with a unit such as {}, found \"{}\"; write {}", what,
                                 example, text, join(meant, " or ")));
  }
  std::vector<std::string> names(units.size());
  std::transform(units.begin(), units.end(), names.begin(),
                 [](const Unit& u) { return std::string(u.name); });
  const std::string near = nearest(unit, names);
  throw UsageError(
      fmt::format("expected {} such as {}, found the unknown unit \"{}\" in \"{}\"; {}", what,
                  example, unit, text,
                  near.empty() ? fmt::format("{} has one of: {}", what, join(names, " "))
                               : fmt::format("did you mean {}?", near)));
}

/// Three digits: 9.99, 99.9 and 999. The limits are the numbers that would round up to the next
/// digit: 99.95 would become "100.0".
std::string format_scaled(double value, std::span<const Unit> ascending) {
  if (!std::isfinite(value)) return "n/a";
  Unit chosen = ascending.front();
  for (const Unit& u : ascending)
    if (std::abs(value) >= u.factor) chosen = u;
  const double scaled = value / chosen.factor;
  const double magnitude = std::abs(scaled);
  const int decimals = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", scaled, decimals, chosen.name);
}

/// The number that makes up the whole text but for blanks around it.
template <typename Number>
Number parse_whole(std::string_view text, std::string_view what) {
  const std::string_view whole = trim(text);
  Number number = 0;
  const auto [end, status] = std::from_chars(whole.data(), whole.data() + whole.size(), number);
  if (status != std::errc{} || end != whole.data() + whole.size() ||
      !std::isfinite(static_cast<double>(number)))
    throw UsageError(fmt::format("expected {}, found \"{}\"", what, text));
  return number;
}

std::int64_t whole_bytes(double value, std::string_view text) {
  if (value > 9.2e18) throw UsageError(fmt::format("size \"{}\" is above 2^63 bytes", text));
  return static_cast<std::int64_t>(std::llround(value));
}

}  // namespace

Bytes parse_size(std::string_view text) {
  return {whole_bytes(parse_with_unit(text, kSizes, {"a size", "25MiB", {"B", "MiB"}}), text)};
}

BytesPerSecond parse_rate(std::string_view text) {
  return {parse_with_unit(text, kRates, {"a rate", "10Gbit/s", {"Gbit/s", "GB/s"}, false})};
}

Seconds parse_time(std::string_view text) {
  const double seconds = parse_with_unit(text, kTimes, {"a time", "20us", {"us", "ms", "s"}});
  return {seconds};
}

std::int64_t parse_integer(std::string_view text) {
  return parse_whole<std::int64_t>(text, "a whole number");
}

double parse_number(std::string_view text) { return parse_whole<double>(text, "a number"); }

std::string format_percent(double share) {
  const double percent = 100 * std::abs(share);
  if (percent < 0.05) return "0 %";
  // Two digits, three next to 100: "0.3 %", "12 %", "99.7 %".
  const bool whole = percent >= 9.95 && !(percent >= 99.5 && percent < 99.95);
  return fmt::format("{:.{}f} %", 100 * share, whole ? 0 : 1);
}

std::string format_time(double seconds) {
  constexpr std::array units = {Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};
  return seconds == 0 ? "0 s" : format_scaled(seconds, units);
}

std::string format_size(double bytes) {
  constexpr std::array units = {Unit{"B", 1}, Unit{"kB", 1e3}, Unit{"MB", 1e6}, Unit{"GB", 1e9},
                                Unit{"TB", 1e12}};
  return format_scaled(bytes, units);
}

std::string format_rate(double bytes_per_second) {
  constexpr std::array units = {Unit{"B/s", 1}, Unit{"kB/s", 1e3}, Unit{"MB/s", 1e6},
                                Unit{"GB/s", 1e9}};
  return format_scaled(bytes_per_second, units);
}

std::string format_bit_rate(double bytes_per_second) {
  constexpr std::array units = {Unit{"bit/s", 1}, Unit{"kbit/s", 1e3}, Unit{"Mbit/s", 1e6},
                                Unit{"Gbit/s", 1e9}};
  return format_scaled(bytes_per_second * kBitsPerByte, units);
}

/// Example: "ddp, dear+topk(density=0.01, warmup=3)" at commas has two parts, not three.
std::vector<std::string> split_outside_parentheses(std::string_view text, char separator) {
  std::vector<std::string> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      parts.emplace_back(trim(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      --depth;
    }
  }
  return parts;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string_view trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

/// The distance is the least number of insertions, deletions, replacements and swaps of neighbours
/// (optimal string alignment), whatever the case. `rows[i][j]` is the distance between the first i
/// characters of `word` and the first j of the other. A candidate counts if it differs in at most a
/// third of the word's characters (at least one). For example "dpd" is one swap away from "ddp".
std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  const auto distance = [typed = lowered(word)](const std::string& candidate) {
    const std::string other = lowered(candidate);
    std::vector rows(typed.size() + 1, std::vector<std::size_t>(other.size() + 1));
    std::iota(rows[0].begin(), rows[0].end(), std::size_t{0});
    for (std::size_t i = 1; i <= typed.size(); ++i) {
      rows[i][0] = i;
      for (std::size_t j = 1; j <= other.size(); ++j) {
        rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1,
                               rows[i - 1][j - 1] + (typed[i - 1] != other[j - 1])});
        if (i > 1 && j > 1 && typed[i - 1] == other[j - 2] && typed[i - 2] == other[j - 1])
          rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
    return rows.back().back();
  };
  std::string best;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates)
    if (const std::size_t d = distance(candidate); d < least) least = d, best = candidate;
  return best;
}

namespace {

/// The number of bytes of the UTF-8 character that begins here; 0 if none does.
///
/// The first byte tells the length: below 0x80 one byte, from 0xc2 two, from 0xe0 three, from 0xf0
/// four. Each later byte adds 6 bits. Four things are refused besides broken sequences: control
/// characters, surrogates, codes above 0x10ffff, and codes that a shorter sequence could give.
std::size_t character_at(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80)
    return (first >= ' ' && first != 0x7f) || first == '\t' || first == '\n' || first == '\r';
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  std::uint32_t code = first & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool control = code < 0xa0, surrogate = code >= 0xd800 && code < 0xe000;
  const bool longer_than_needed = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  return control || surrogate || longer_than_needed || code > 0x10ffff ? 0 : size;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_at(text);
    if (size == 0)
      out += '?';
    else
      out += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

std::vector<std::string> table_lines(const std::vector<std::string>& heads, const TextRows& rows,
                                     std::string_view indent) {
  std::vector<std::string> names;
  std::vector<std::size_t> widths;
  for (const std::string& head : heads) {
    names.push_back(head.substr(head.starts_with('>')));
    std::size_t& width = widths.emplace_back(names.back().size());
    for (const auto& row : rows) width = std::max(width, row[names.size() - 1].size());
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out(indent);
    for (std::size_t c = 0; c < heads.size(); ++c) {
      if (c > 0) out += "  ";
      out += heads[c].starts_with('>') ? fmt::format("{:>{}}", cells[c], widths[c])
                                       : fmt::format("{:<{}}", cells[c], widths[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::vector<std::string> lines = {line(names)};
  for (const auto& row : rows) lines.push_back(line(row));
  return lines;
}

std::string text_table(const std::vector<std::string>& heads, const TextRows& rows,
                       std::string_view indent) {
  std::string out;
  for (const std::string& text : table_lines(heads, rows, indent)) out += text + "\n";
  return out;
}

}  // namespace linerate
