// Labels are taken off one by one, from the left, until none is recognised.
// "[1,0]<stdout>:2024-03-01 12:00:00 INFO 1048576 262144 float" loses a bracket, two time stamps
// and a mark. The search stops at the number, which is no label.
#include "linerate/bench_logs/log_readers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <regex>

#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"

namespace linerate::bench_logs {
namespace {

/// One label. (?=\s|$) ends a word.
const std::regex& any_label() {
  static const std::regex label(
      // "[1,0]<stdout>:", "(head, rank=0)"
      R"((?:\[[^\]]{0,198}\]|\([^)]{0,198}\))(?:<stdout>|<stderr>|<stddiag>)?:?)"
      // "2024-03-01", "12:00:00,123", "2024-03-01T12:00:00.5Z": digits with at least two dividers.
      R"(|\d[\d.,+TZ]*[:-][\d.,+TZ]*[:-][\d:.,+TZ-]*(?=\s|$))"
      // After it, the year before a bracket, or a name before another one with a colon.
      R"((?:\s+(?:\d{4}(?=[\[(])|[A-Za-z]\S*\s+\S+:(?=\s|$)))?)"
      // "0:", "node1:", or "node1:1024" and "0:#" glued to the line.
      R"(|\S+:(?=\s|$)|\S+:(?=#[^\s:]*(?:\s|$))|\S*[A-Za-z]\S*:(?=\d[^\s:]*(?:\s|$)))"
      // Single marks between a label and the line.
      R"(|(?:[|>FP-]|INFO|DEBUG|STDOUT|stdout|stderr)(?=\s|$))"
      // "Mar 18", "Fri", and "name-1 |".
      R"(|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)(?=\s|$))"
      R"((?:\s+\d{1,2}(?=\s|$))?|[A-Za-z]\S*\s+\|(?=\s|$))");
  return label;
}

/// The first label of `text`; empty: none.
std::string_view label_of(std::string_view text) {
  constexpr std::size_t kLongest = 256;
  const std::string_view head = text.substr(0, kLongest);
  if (number_of(head.substr(0, head.find_first_of(" \t\r")))) return {};
  std::cmatch found;
  return std::regex_search(head.data(), head.data() + head.size(), found, any_label(),
                           std::regex_constants::match_continuous)
             ? head.substr(0, static_cast<std::size_t>(found.length()))
             : std::string_view();
}

}  // namespace

std::string_view without_label(std::string_view line) {
  std::string_view rest = trim(line);
  for (std::string_view label; !(label = label_of(rest)).empty();)
    rest = trim(rest.substr(label.size()));
  return rest;
}

std::string without_repeated_label(std::string_view line) {
  const std::string_view whole = trim(line), rest = without_label(line);
  const bool has_bracket = whole.starts_with('[') || whole.starts_with('(');
  const std::string_view label = has_bracket ? label_of(whole) : std::string_view();
  return label.empty() ? std::string(rest) : replaced(rest, label, " ");
}

std::string plain_word(std::string_view text) {
  std::string out = lowered(text);
  std::erase_if(out, [](char c) { return c == '_' || c == '-' || c == ' '; });
  return out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0;;) {
    at = line.find_first_not_of(" \t\r", at);
    if (at == std::string_view::npos) return words;
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool is_among(std::string_view word, std::string_view names) {
  const auto padded = [](std::string_view text) { return " " + std::string(text) + " "; };
  return !word.empty() && !contains(word, " ") && contains(padded(names), padded(word));
}

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string out(text);
  for (std::size_t at = 0; (at = out.find(what, at)) != std::string::npos; at += with.size())
    out.replace(at, what.size(), with);
  return out;
}

std::string plain_blanks(std::string_view line) { return replaced(line, "\xc2\xa0", " "); }

std::string shortened(std::string_view line) {
  constexpr std::size_t kShown = 80;
  std::string text(line.substr(0, 4096));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c == '\x7f'; }, ' ');
  text = printable(fmt::format("{}", fmt::join(words_of(text), " ")));
  if (text.size() <= kShown) return text;
  std::size_t end = kShown;
  // Not in the middle of a character of several bytes.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (status != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<int> count_of(std::string_view word, double least) {
  const auto n = number_of(word);
  const bool fits = n && *n >= least && *n <= kMostRanks && *n == std::floor(*n);
  return fits ? std::optional(static_cast<int>(*n)) : std::nullopt;
}

/// Prefixes of libraries are taken off first. Types of equal size that documents do not have stand
/// for the one that they have: uint32 is i32, 8-bit floats are u8.
std::optional<DType> dtype_of_log(std::string_view name) {
  static constexpr std::array<std::pair<DType, std::string_view>, 7> kNames = {
      {{DType::f32, "float float32 fp32 f32"},
       {DType::f64, "double float64 fp64 f64"},
       {DType::f16, "half float16 fp16 f16"},
       {DType::bf16, "bfloat16 bf16"},
       {DType::i32, "int32 int uint32"},
       {DType::i64, "int64 uint64"},
       {DType::u8, "int8 uint8 char byte f8e4m3 f8e5m2 fp8e4m3 fp8e5m2"}}};
  std::string key = plain_word(name);
  for (const std::string_view prefix : {"torch.", "nccl", "mpi"})
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
  for (const auto& [type, names] : kNames)
    if (is_among(key, names)) return type;
  return std::nullopt;
}

// Chooses a reader by the first bytes of a log. The order of kFormats matters. nccl-tests' own
// columns with commas are a table, and the reader of text comes last, because its rows may be
// anywhere. Benchmarks that are known and not read are refused by name. Whatever remains is tried
// as a table without a header, and then as text whose head is full of debug output.

namespace {

/// The first that matches reads.
constexpr std::array kFormats = {&kNcclTestsJson, &kRcclTestsJson, &kTable,
                                 &kDeepSpeed,     &kOsu,           &kNcclTests};

/// Benchmarks that are not read, and the words by which their output is known.
constexpr std::pair<std::string_view, std::string_view> kOtherBenchmarks[] = {
    {"Intel MPI Benchmarks", "Intel(R) MPI Benchmarks"},
    {"Intel MPI Benchmarks", "Intel (R) MPI Benchmarks"},
    {"Intel MPI Benchmarks", "IMB-MPI1"},
    {"Intel MPI Benchmarks or oneCCL's benchmark", "#repetitions"},
    {"perftest (ib_write_bw and its kin)", "#iterations"},
    {"perftest (ib_write_bw and its kin)", "RDMA_Write BW Test"},
    {"UCC's perftest", "Memory type:"},
    {"nvbandwidth", "nvbandwidth Version"},
    {"p2pBandwidthLatencyTest", "P2P Connectivity Matrix"},
    {"DeepSpeed's communication benchmarks", "---- Performance of "},
    {"hccl_demo", "hccl_demo"},
    {"PARAM's communication benchmark", "COMMS-RES"},
    {"iperf", "[ ID] Interval"},
};

const LogFormat* format_of_log(std::string_view head) {
  for (const LogFormat* format : kFormats)
    if (format->matches(head)) return format;
  return nullptr;
}

void refuse_by_name(const trace::InputFile& input, std::string_view head) {
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
    throw InputError(input.name(),
                     "expected text in UTF-8, found UTF-16, as PowerShell writes it; convert it "
                     "with: iconv -f UTF-16 -t UTF-8");
  for (const auto& [name, mark] : kOtherBenchmarks)
    if (contains(head, mark))
      throw InputError(
          input.name(),
          fmt::format("output of {} is not read; expected a log of nccl-tests or OSU "
                      "micro-benchmarks, or its times as a table bytes,seconds,ranks,collective, "
                      "with the bytes of the whole array",
                      name));
}

/// In quotes, for a message.
std::string first_line_of(std::string_view head) {
  while (!head.empty())
    if (const std::string line = shortened(take_line(head)); !line.empty())
      return "\"" + line + "\"";
  return "missing";
}

/// Tries the formats from the surest sign to the weakest. The last try reads the whole file as
/// nccl-tests' text, and gives the message about what was expected if that finds no row.
CollectiveLog read_any(trace::InputFile& input, const CollectiveLogOptions& options) {
  if (const LogFormat* format = format_of_log(input.head())) return format->read(input, options);
  refuse_by_name(input, input.head());
  if (kPlainTable.matches(input.head())) return kPlainTable.read(input, options);
  const std::string first = first_line_of(input.head());
  // Debug output of NCCL may fill the head before the first header.
  CollectiveLog log = kNcclTests.read(input, options);
  if (log.rows.empty())
    throw InputError(
        input.name(),
        fmt::format("expected a log of nccl-tests (text or JSON) or OSU micro-benchmarks, or a "
                    "table with a header such as bytes,time_us,ranks,collective; found none of "
                    "their headers; the first line is {}",
                    first));
  return log;
}

}  // namespace

bool is_collective_log(std::string_view head) { return format_of_log(head) != nullptr; }

CollectiveLog read_collective_log(trace::InputFile& input, const CollectiveLogOptions& options) {
  try {
    CollectiveLog log = read_any(input, options);
    if (log.rows.empty())
      throw InputError(input.name(), fmt::format("the {} log holds no row with a size and a time; "
                                                 "give the whole output of the benchmark",
                                                 log.format));
    if (input.truncated()) log.note("the gzip stream ends early; rows up to there were read");
    return log;
  } catch (const InputError& e) {
    input.rethrow_with_cause(e.what());
  }
}

CollectiveLog load_collective_log(const std::filesystem::path& path,
                                  const CollectiveLogOptions& options) {
  trace::InputFile input = trace::InputFile::open(path);
  return read_collective_log(input, options);
}

}  // namespace linerate::bench_logs
