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
  std::string out;
  for (const char c : lowered(text))
    if (c != '_' && c != '-' && c != ' ') out += c;
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

std::string_view plain_blanks(std::string_view line, std::string& storage) {
  constexpr std::string_view kNoBreak = "\xc2\xa0";
  if (line.find(kNoBreak) == std::string_view::npos) return line;
  storage = line;
  for (std::size_t at = 0; (at = storage.find(kNoBreak, at)) != std::string::npos;)
    storage.replace(at, kNoBreak.size(), " ");
  return storage;
}

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

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (status != std::errc{} || end != word.data() + word.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<DType> dtype_of_log(std::string_view name) {
  struct Name {
    std::string_view text;
    DType type;
  };
  static constexpr std::array kNames = {
      Name{"float", DType::f32},     Name{"float32", DType::f32}, Name{"fp32", DType::f32},
      Name{"f32", DType::f32},       Name{"double", DType::f64},  Name{"float64", DType::f64},
      Name{"half", DType::f16},      Name{"float16", DType::f16}, Name{"fp16", DType::f16},
      Name{"bfloat16", DType::bf16}, Name{"bf16", DType::bf16},   Name{"int32", DType::i32},
      Name{"int", DType::i32},       Name{"uint32", DType::i32},  Name{"int64", DType::i64},
      Name{"uint64", DType::i64},    Name{"int8", DType::u8},     Name{"uint8", DType::u8},
      Name{"char", DType::u8},       Name{"byte", DType::u8},     Name{"f8e4m3", DType::u8},
      Name{"f8e5m2", DType::u8},     Name{"fp8e4m3", DType::u8},  Name{"fp8e5m2", DType::u8}};
  std::string key = plain_word(name);
  for (const std::string_view prefix : {"torch.", "nccl", "mpi"})
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
  for (const Name& n : kNames)
    if (key == n.text) return n.type;
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

int settle_ranks(const std::string& name, std::optional<int> from_log,
                 std::optional<int> from_caller) {
  if (from_log && from_caller && *from_log != *from_caller)
    throw InputError(name,
                     fmt::format("expected {} ranks as --ranks says, found a log of {}; leave "
                                 "--ranks out",
                                 *from_caller, *from_log));
  return from_log ? *from_log : from_caller.value_or(0);
}

}  // namespace linerate::bench_logs
