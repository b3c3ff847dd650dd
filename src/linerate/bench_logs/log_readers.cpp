// Labels are taken off one by one, from the left, until none is recognised.
// "[1,0]<stdout>:2024-03-01 12:00:00 INFO 1048576 262144 float" loses a bracket, two time stamps
// and a mark. The search stops at the number, which is no label.
#include "linerate/bench_logs/log_readers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"

namespace linerate::bench_logs {
namespace {

constexpr std::size_t kLongestBracket = 200;

bool is_decimal_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed_left(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, std::min(text.find_first_of(" \t\r"), text.size()));
}

/// "2024-03-01", "12:00:00,123", "2024-03-01T12:00:00.5Z": digits with at least two dividers.
bool is_time_stamp(std::string_view word) {
  if (word.empty() || !is_decimal_digit(word[0])) return false;
  const auto dividers =
      std::count_if(word.begin(), word.end(), [](char c) { return c == ':' || c == '-'; });
  return dividers >= 2 && word.find_first_not_of("0123456789:-.,+TZ") == std::string_view::npos;
}

constexpr std::string_view kDaysAndMonths =
    "Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
/// Single marks between a label and the line.
constexpr std::string_view kMarks = "| - > INFO DEBUG STDOUT stdout stderr F P";

/// "[1,0]<stdout>:", "(head, rank=0)": the length with what clings to the bracket, 0 if `text` does
/// not begin with one.
std::size_t bracket_length(std::string_view text) {
  const char close = text.starts_with('[') ? ']' : text.starts_with('(') ? ')' : '\0';
  if (close == '\0') return 0;
  std::size_t end = text.find(close);
  if (end == std::string_view::npos || end > kLongestBracket) return 0;
  ++end;
  for (const std::string_view stream : {"<stdout>", "<stderr>", "<stddiag>"})
    if (text.substr(end).starts_with(stream)) end += stream.size();
  return end < text.size() && text[end] == ':' ? end + 1 : end;
}

/// "0:", "node1:", or "node1:1024" and "0:#" glued to the line.
std::size_t colon_length(std::string_view word) {
  if (word.size() > 1 && word.back() == ':') return word.size();
  const std::size_t colon = word.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == word.size()) return 0;
  const char next = word[colon + 1];
  const bool named =
      std::any_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(colon), is_letter);
  return next == '#' || (named && is_decimal_digit(next)) ? colon + 1 : 0;
}

/// Length of labels that take a second word to recognise; 0: none. "Mar 18" is a date. A name is a
/// label if "|" follows it, or after a time stamp if a word with a colon follows. A year may cling
/// to a bracket.
std::size_t length_of_several(std::string_view text, std::string_view word, bool after_stamp) {
  const std::string_view second = first_word(trimmed_left(text.substr(word.size())));
  const bool day = is_among(word, kDaysAndMonths) && second.size() <= 2 && number_of(second);
  const bool name = !word.empty() && is_letter(word[0]);
  const bool colon = after_stamp && !second.empty() && colon_length(second) == second.size();
  if (day || (name && (second == "|" || colon)))
    return to_index(second.data() + second.size() - text.data());
  if (is_among(word, kDaysAndMonths)) return word.size();
  const bool year = after_stamp && word.size() > 4 && (word[4] == '[' || word[4] == '(') &&
                    number_of(word.substr(0, 4));
  return year ? 4 : 0;
}

/// Length of the first label of `text`; 0: none.
std::size_t label_length(std::string_view text, bool& after_stamp) {
  if (const std::size_t bracket = bracket_length(text)) return bracket;
  const std::string_view word = first_word(text);
  if (is_time_stamp(word)) {
    after_stamp = true;
    return word.size();
  }
  if (const std::size_t colon = colon_length(word)) return colon;
  return is_among(word, kMarks) ? word.size() : length_of_several(text, word, after_stamp);
}

}  // namespace

std::string_view without_label(std::string_view line) {
  std::string_view rest = trimmed_left(line);
  bool after_stamp = false;
  while (const std::size_t length = label_length(rest, after_stamp))
    rest = trimmed_left(rest.substr(length));
  return rest;
}

std::string without_repeated_label(std::string_view line) {
  const std::string_view whole = trimmed_left(line), rest = without_label(line);
  const std::string_view label = whole.substr(0, bracket_length(whole));
  return label.empty() ? std::string(rest) : replaced(rest, label, " ");
}

// How many ranks ran, and how many of them on a node. With one communicator, the highest listed
// number plus one is the count. With several groups, numbers run over all of them, so the lines of
// the largest group are counted.
//
// Example: 8 ranks, with 4 lines of node1, 2 of node2 and two lines lost. There are two hosts, and
// the fullest one has 4 lines. 4 x 2 is 8, so four ranks share a node. With 3 lines of node1 this
// would not hold, and the answer is unknown.

void ListedRanks::add(int rank, int group, std::string_view host, std::string_view device) {
  highest_rank_ = std::max(highest_rank_, rank);
  Group& g = groups_[group];
  ++g.lines;
  if (host.empty()) return;
  ++g.of_host[std::string(host)];
  const auto number = number_of(device);
  if (number && rank == highest_rank_ && *number >= 0 && *number < kMostRanks)
    last_device_ = static_cast<int>(*number);
  if (!device.empty() && !devices_.emplace(host, device).second) one_name_for_several_ = true;
}

void ListedRanks::set(int ranks, int ranks_per_node) {
  ranks_ = ranks;
  ranks_per_node_ = ranks_per_node;
}

std::optional<int> ListedRanks::ranks() const {
  if (ranks_) return ranks_;
  if (groups_.empty()) return std::nullopt;
  if (groups_.size() == 1) return highest_rank_ + 1;
  // Numbers run over all groups, and each group has a communicator of its own.
  int most = 0;
  for (const auto& [number, group] : groups_) most = std::max(most, group.lines);
  return most;
}

int ListedRanks::ranks_per_node(int ranks) const {
  if (ranks_per_node_) return *ranks_per_node_;
  if (groups_.empty() || one_name_for_several_ || ranks < 1) return 0;
  const auto largest = std::max_element(
      groups_.begin(), groups_.end(),
      [](const auto& a, const auto& b) { return a.second.lines < b.second.lines; });
  int most = 0;
  for (const auto& [host, count] : largest->second.of_host) most = std::max(most, count);
  // Holds when lines were lost, too: as many on every host as on the one that is listed whole.
  if (most * static_cast<int>(largest->second.of_host.size()) == ranks) return most;
  const int devices = last_device_.value_or(0) + 1;
  const bool ends_node = (highest_rank_ + 1) % devices == 0 && ranks % devices == 0;
  return is_cut(ranks) && devices > 1 && ends_node ? devices : 0;
}

bool ListedRanks::is_cut(int ranks) const {
  return !ranks_per_node_ && groups_.size() == 1 && groups_.begin()->second.lines < ranks;
}

std::string ListedRanks::doubt(int ranks) const {
  if (!is_cut(ranks)) return "";
  const int lines = groups_.begin()->second.lines, taken = ranks_per_node(ranks);
  const std::string listed =
      fmt::format("{} of {} ranks {} listed", lines, ranks, lines == 1 ? "is" : "are");
  if (taken == 0)
    return listed + ": the number that share a node is not known; give --ranks-per-node";
  return fmt::format("{}: taken as {} on each node; if that is wrong, give --ranks-per-node",
                     listed, taken);
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

bool is_among(std::string_view word, std::string_view names) {
  if (word.empty() || word.find(' ') != std::string_view::npos) return false;
  for (std::size_t at = 0; (at = names.find(word, at)) != std::string_view::npos; ++at) {
    const std::size_t end = at + word.size();
    if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' '))
      return true;
  }
  return false;
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
  std::string text;
  for (const char c : line.substr(0, 4096)) {
    const bool blank = static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
    if (!blank)
      text += c;
    else if (!text.empty() && text.back() != ' ')
      text += ' ';
  }
  text = printable(trim(text));
  if (text.size() <= kShown) return text;
  std::size_t end = kShown;
  // Not in the middle of a character of several bytes.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string quoted_line(std::size_t number, std::string_view line) {
  return fmt::format("line {}: \"{}\"", number, shortened(line));
}

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (status != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
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

std::optional<Collective> collective_named_in(std::string_view text) {
  const std::string key = plain_word(text);
  // reduce-scatter and all-reduce before reduce, all-gather before gather.
  static constexpr std::array<std::pair<std::string_view, Collective>, 7> kNames = {
      {{"reducescatter", Collective::reduce_scatter},
       {"allreduce", Collective::all_reduce},
       {"allgather", Collective::all_gather},
       {"alltoall", Collective::all_to_all},
       {"broadcast", Collective::broadcast},
       {"bcast", Collective::broadcast},
       {"reduceperf", Collective::reduce}}};
  for (const auto& [name, collective] : kNames)
    if (key.find(name) != std::string::npos) return collective;
  return std::nullopt;
}

void refuse_ranks(const std::string& name, int asked, const std::string& found) {
  throw InputError(name, fmt::format("expected {} ranks as --ranks says, found a log of {}; leave "
                                     "--ranks out",
                                     asked, found));
}

int settle_ranks(const std::string& name, std::optional<int> from_log,
                 std::optional<int> from_caller) {
  if (from_log && from_caller && *from_log != *from_caller)
    refuse_ranks(name, *from_caller, std::to_string(*from_log));
  return from_log ? *from_log : from_caller.value_or(0);
}

// Chooses a reader by the first bytes of a log. The order of kFormats matters. nccl-tests' own
// columns with commas are a table, and the reader of text comes last, because its rows may be
// anywhere. Benchmarks that are known and not read are refused by name. Whatever remains is tried
// as a table without a header, and then as text whose head is full of debug output.

namespace {

struct LogFormat {
  bool (*matches)(std::string_view head);
  CollectiveLog (*read)(trace::InputFile&, const CollectiveLogOptions&);
};

/// The first that matches reads.
constexpr std::array kFormats = {LogFormat{is_nccl_tests_json, read_nccl_tests_json},
                                 LogFormat{is_rccl_tests_json, read_rccl_tests_json},
                                 LogFormat{is_collective_table, read_collective_table},
                                 LogFormat{is_hccl_demo, read_collective_table},
                                 LogFormat{is_deepspeed, read_deepspeed},
                                 LogFormat{is_osu, read_osu},
                                 LogFormat{is_nccl_tests, read_nccl_tests}};

/// Benchmarks that are not read, and the words by which their output is known.
struct OtherBenchmark {
  std::string_view name, mark;
};
constexpr std::array kOtherBenchmarks = {
    OtherBenchmark{"Intel MPI Benchmarks", "Intel(R) MPI Benchmarks"},
    OtherBenchmark{"Intel MPI Benchmarks", "Intel (R) MPI Benchmarks"},
    OtherBenchmark{"Intel MPI Benchmarks", "IMB-MPI1"},
    OtherBenchmark{"Intel MPI Benchmarks or oneCCL's benchmark", "#repetitions"},
    OtherBenchmark{"perftest (ib_write_bw and its kin)", "#iterations"},
    OtherBenchmark{"perftest (ib_write_bw and its kin)", "RDMA_Write BW Test"},
    OtherBenchmark{"UCC's perftest", "Memory type:"},
    OtherBenchmark{"nvbandwidth", "nvbandwidth Version"},
    OtherBenchmark{"p2pBandwidthLatencyTest", "P2P Connectivity Matrix"},
    OtherBenchmark{"DeepSpeed's communication benchmarks", "---- Performance of "},
    OtherBenchmark{"hccl_demo", "hccl_demo"},
    OtherBenchmark{"PARAM's communication benchmark", "COMMS-RES"},
    OtherBenchmark{"iperf", "[ ID] Interval"},
};

const LogFormat* format_of_log(std::string_view head) {
  const auto found = std::find_if(kFormats.begin(), kFormats.end(),
                                  [head](const LogFormat& f) { return f.matches(head); });
  return found == kFormats.end() ? nullptr : found;
}

void refuse_by_name(const trace::InputFile& input, std::string_view head) {
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
    throw InputError(input.name(),
                     "expected text in UTF-8, found UTF-16, as PowerShell writes it; convert it "
                     "with: iconv -f UTF-16 -t UTF-8");
  for (const OtherBenchmark& other : kOtherBenchmarks)
    if (head.find(other.mark) != std::string_view::npos)
      throw InputError(
          input.name(),
          fmt::format("output of {} is not read; expected a log of nccl-tests or OSU "
                      "micro-benchmarks, or its times as a table bytes,seconds,ranks,collective, "
                      "with the bytes of the whole array",
                      other.name));
}

/// In quotes, for a message.
std::string first_line_of(std::string_view head) {
  for (; !head.empty(); head.remove_prefix(std::min(head.find('\n'), head.size() - 1) + 1))
    if (const std::string line = shortened(head.substr(0, head.find('\n'))); !line.empty())
      return "\"" + line + "\"";
  return "missing";
}

/// Tries the formats from the surest sign to the weakest. The last try reads the whole file as
/// nccl-tests' text, and gives the message about what was expected if that finds no row.
CollectiveLog read_any(trace::InputFile& input, const CollectiveLogOptions& options) {
  if (const LogFormat* format = format_of_log(input.head())) return format->read(input, options);
  refuse_by_name(input, input.head());
  if (is_plain_table(input.head())) return read_collective_table(input, options);
  const std::string first = first_line_of(input.head());
  // Debug output of NCCL may fill the head before the first header.
  CollectiveLog log = read_nccl_tests(input, options);
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
