// Values of options with a unit or a syntax of their own; an error names the option.
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::verbs {

/// What --help calls values with a unit. A caller that has numbers gives them in seconds, bytes and
/// bytes per second, as Python does.
inline constexpr const char *kTime = "TIME", *kSize = "SIZE", *kRate = "RATE";

/// parse(text); its UsageError gets the prefix "--option: ". Parsers know nothing of options: the
/// same ones read files.
template <typename Parse>
auto parse_option(const std::string& option, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{}: {}", option, e.what()));
  }
}

/// The parser of values with commas between them, outside parentheses; none of an empty text. An
/// example: "topk(density=0.01),fp16" has two values, and "codec(ratio=8, encode=10GB/s)" one.
template <typename Parse>
auto list_of(Parse parse) {
  return [parse](const std::string& text) {
    std::vector<decltype(parse(text))> values;
    if (text.empty()) return values;
    for (const std::string& part : split_outside_parentheses(text, ','))
      values.push_back(parse(part));
    return values;
  };
}

// Options whose text becomes a value while the words are read. A verb's options are then those of
// the library. Each is given a reference that outlives the verb.

/// value = parse(text).
template <typename Value, typename Parse>
CLI::Option* add_parsed(CLI::App& verb, const std::string& name, Value& value, Parse parse,
                        const std::string& says) {
  const auto read = [=, &value](const std::string& text) {
    value = parse_option(name, text, parse);
  };
  return verb.add_option_function<std::string>(name, read, says);
}

/// Adds parse(text), a list, for each time that the option is given.
template <typename Value, typename Parse>
CLI::Option* add_repeated(CLI::App& verb, const std::string& name, std::vector<Value>& values,
                          Parse parse, const std::string& says) {
  const auto read = [=, &values](const std::vector<std::string>& texts) {
    for (const std::string& text : texts)
      for (Value& value : parse(text)) values.push_back(std::move(value));
  };
  return verb.add_option_function<std::vector<std::string>>(name, read, says)
      ->allow_extra_args(false);
}

/// Throws UsageError if writing `output` would destroy one of the files it is made from. Files are
/// compared, not names: links and other spellings of a path are seen.
inline void refuse_input_as_output(const std::string& option, const std::string& output,
                                   const std::vector<std::string>& inputs) {
  std::error_code absent;  // what does not exist is equivalent to nothing
  for (const std::string& input : inputs)
    if (!input.empty() && std::filesystem::equivalent(output, input, absent))
      throw UsageError(
          fmt::format("{}: {} is one of the files read; name another", option, output));
}

/// For which a silent rank is waited. A time below a millisecond would end any run, one beyond 1e9
/// s overflows clocks.
inline Duration parse_timeout(const std::string& text) {
  constexpr double kLeast_s = 1e-3, kMost_s = 1e9;  // as a Communicator takes them
  const double seconds = parse_time(text).value;
  if (!(seconds >= kLeast_s && seconds <= kMost_s))
    throw UsageError(fmt::format("expected a time from 1ms to 1e9s, found {}", text));
  return to_duration({seconds});
}

/// A number of ranks that a Plan can have.
template <int kLeast = 1>
int parse_ranks(const std::string& text) {
  const std::int64_t ranks = parse_integer(text);
  if (ranks < kLeast || ranks > kMostRanks)
    throw UsageError(fmt::format("expected {} to {} ranks, found {}", kLeast, kMostRanks, text));
  return static_cast<int>(ranks);
}

/// As a CostModel takes it. Slower is a mistake of units, and times would overflow.
inline BytesPerSecond parse_bandwidth(const std::string& text) {
  const BytesPerSecond rate = parse_rate(text);
  if (!(rate.value >= cost::kLeastBandwidth.value))
    throw UsageError(fmt::format("expected at least 1bit/s, found {}", text));
  return rate;
}

// Bounds of options. CLI11's own print the largest double as the upper end of theirs.

/// "expected a number above 0, found 0"
CLI::Validator above_zero();
/// "expected a number from 0, found -1"
CLI::Validator from_zero();
/// "expected a number from 0 to 1, found 2"
CLI::Validator between(double least, double most);
/// "expected fp16 or bf16, found fp61; did you mean fp16?"
CLI::Validator one_of(const std::vector<std::string>& words);

/// Of steps, samples, ranks: no product of two of them leaves 64 bits. The product of two such
/// numbers is 10^18, and 64 bits hold 9 times that.
inline constexpr std::int64_t kMostCounted = 1'000'000'000;
/// More are no machine's, and LibTorch dies of starting them.
inline constexpr std::int64_t kMostThreads = 4096;
/// "expected a whole number from 1 to 4096, found 100000"
CLI::Validator count(std::int64_t least = 1, std::int64_t most = kMostCounted);

/// An option whose default --help shows.
template <typename T>
CLI::Option* add_with_default(CLI::App& verb, const std::string& name, T& value,
                              const std::string& says, const CLI::Validator& check = {}) {
  return verb.add_option(name, value, says)->check(check)->capture_default_str();
}

// What a verb gets from its caller besides options: documents in memory, and where its progress
// goes. The command line has neither documents nor Python's callbacks; Python has both. A verb is
// the same function for the two.

/// Documents that a caller in the same process holds. An option names one as it would name a file.
/// An example: Python's whatif(workload=w) holds w as "<workload>", and gives that name as
/// --workload. The verb asks here first.
class Documents {
 public:
  /// A later document of the same name takes its place.
  template <typename Document>
  void hold(const std::string& name, std::shared_ptr<const Document> document) {
    held_[name] = std::move(document);
  }
  /// nullptr: no document has this name, so it is a file's.
  template <typename Document>
  std::shared_ptr<const Document> find(const std::string& name) const {
    const auto at = held_.find(name);
    if (at == held_.end()) return nullptr;
    if (const auto* held = std::get_if<std::shared_ptr<const Document>>(&at->second)) return *held;
    refuse(name, at->second.index(), Held(std::shared_ptr<const Document>()).index());
  }
  /// Of any kind.
  bool holds(const std::string& name) const { return held_.contains(name); }
  /// Whether the name is that of a document of this kind.
  template <typename Document>
  bool is(const std::string& name) const {
    const auto at = held_.find(name);
    return at != held_.end() && std::holds_alternative<std::shared_ptr<const Document>>(at->second);
  }

 private:
  using Held =
      std::variant<std::shared_ptr<const doc::Workload>, std::shared_ptr<const doc::Cluster>,
                   std::shared_ptr<const doc::Plan>, std::shared_ptr<const doc::Timeline>,
                   std::shared_ptr<const doc::Predictions>, std::shared_ptr<const doc::Advice>>;
  /// Throws UsageError: a document of another kind.
  [[noreturn]] static void refuse(const std::string& name, std::size_t found, std::size_t expected);

  std::map<std::string, Held> held_;
};

/// A line of text: how far the work is.
using Progress = std::function<void(const std::string&)>;

/// The command line's is almost empty: no documents, and a line of progress on a terminal.
struct Caller {
  Documents documents = {};
  Progress progress = {};

  /// Progress, if anybody wants it.
  void show(const std::string& text) const {
    if (progress) progress(text);
  }
};

/// The Cluster in memory, or that of the file.
std::shared_ptr<const doc::Cluster> cluster_of(const std::string& name, const Caller& caller);
/// The Timeline in memory, or that of the file, or of the traces of a job.
std::shared_ptr<const doc::Timeline> timeline_of(const std::string& name, const Caller& caller);

// The command as it was typed, for pages that state how they were made.

/// "linerate VERB --option value ...", options in the order of --help, quoted for a shell where
/// needed. Call after parsing.
std::string command_line(const CLI::App& verb);

// Reads a command line: what CLI11 refuses is said in linerate's words.

/// Runs the callbacks of the verb that the words name. Throws UsageError with place, expected,
/// found, what was probably meant and whose --help to read; CLI::Success for --help and --version.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

}  // namespace linerate::verbs
