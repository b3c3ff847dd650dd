#include "linerate/bench_logs/log_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/printable.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {

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

}  // namespace linerate::bench_logs
