// Advice for people who stay with PyTorch's DistributedDataParallel. restrict_to() keeps what DDP,
// its hooks and its options can do; the rest is judged apart, to say what linerate.torch would add.
// All texts are written in linerate's words first. put_into_words() then replaces every strategy in
// them by its call in PyTorch.
#include "linerate/advise/notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "linerate/advise/ranking.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

constexpr std::string_view kDdp = "ddp";
constexpr std::string_view kHooks[] = {"fp16", "bf16"};  // wire types, as their hooks are called
constexpr double kBytesPerMb = 1 << 20;                  // of bucket_cap_mb

/// The argument of DDP for an option. It is empty for what DDP does anyway, and absent if DDP has
/// no such option.
std::optional<std::string> argument_of(const std::string& key, const std::string& value) {
  if (key == "bucket_cap_mb") return "bucket_cap_mb=" + value;
  if (key == "small") return value == "last" ? "find_unused_parameters=True" : "";
  if (key == "wire") return "";
  return std::nullopt;
}

/// The communication hook for a wire type or compressor, with the state that it needs. Empty: none
/// is needed. Absent: DDP has none.
std::optional<std::string> hook_of(const doc::Strategy& strategy) {
  if (const std::string* wire = strategy.exchange.find("wire")) {
    const bool is_hook = std::find(std::begin(kHooks), std::end(kHooks), *wire) != std::end(kHooks);
    return is_hook && strategy.extras.empty() ? std::optional(*wire + "_compress_hook")
                                              : std::nullopt;
  }
  if (strategy.extras.empty()) return "";
  const doc::Component& compressor = strategy.extras.front();
  const std::string* rank = compressor.find("rank");
  if (strategy.extras.size() > 1 || compressor.name != "powersgd" || !rank ||
      compressor.options.size() > 1)
    return std::nullopt;
  return fmt::format("powerSGD_hook, PowerSGDState(matrix_approximation_rank={})", *rank);
}

/// DDP's bucket_cap_mb sets the size of all buckets, the first one too. So an option `bucket` alone
/// becomes that.
doc::Strategy as_cap(doc::Strategy strategy) {
  for (auto& [key, value] : strategy.exchange.options)
    if (strategy.exchange.name == kDdp && key == "bucket" && !strategy.exchange.find("first")) {
      const auto bytes = static_cast<double>(parse_size(value).value);
      key = "bucket_cap_mb", value = fmt::format("{:g}", bytes / kBytesPerMb);
    }
  return strategy;
}

/// Replaces strategies in a text by the framework's words for them. The longest name is tried
/// first, so that "ddp+powersgd(rank=4)" is not taken for "ddp". A name counts only if no letter,
/// digit or sign of a strategy stands next to it.
class Wording {
 public:
  explicit Wording(const doc::Advice& advice) {
    for (const doc::Candidate& c : advice.candidates)
      if (!c.named.empty()) names_.emplace_back(c.strategy, c.named), add_hook(c.strategy);
    std::ranges::stable_sort(names_, std::greater(),
                             [](const auto& name) { return name.first.size(); });
  }

  void translate(std::string& text) const {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const auto found = std::find_if(names_.begin(), names_.end(), [&](const auto& name) {
        return std::string_view(text).substr(at).starts_with(name.first) &&
               !(at > 0 && is_of_strategy(text[at - 1])) &&
               !(at + name.first.size() < text.size() &&
                 is_of_strategy(text[at + name.first.size()]));
      });
      out += found == names_.end() ? text.substr(at, 1) : found->second;
      at += found == names_.end() ? 1 : found->first.size();
    }
    text = std::move(out);
  }

  /// Hooks, in linerate's words.
  const std::vector<std::string>& compressions() const { return compressions_; }

 private:
  void add_hook(const std::string& text) {
    const doc::Strategy strategy = doc::parse_strategy(text);
    const std::string name = compression_of(strategy);
    if (name.empty() || std::ranges::count(compressions_, name) > 0) return;
    compressions_.push_back(name);
    names_.emplace_back(name, *hook_of(strategy));
  }

  static bool is_of_strategy(unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("-_+(").find(static_cast<char>(c)) != std::string_view::npos;
  }

  std::vector<std::pair<std::string, std::string>> names_;  // longest first
  std::vector<std::string> compressions_;
};

/// The plainest of the strategies that are within least_gain of the best; null if none is ranked.
const doc::Candidate* best_of(const std::vector<Judged>& judged, double least_gain) {
  const doc::Candidate* best = nullptr;
  for (const Judged& j : judged) {
    const doc::Candidate& c = j.candidate;
    if (c.standing != doc::Standing::ranked) continue;
    if (!best || c.target_s->value < best->target_s->value * (1 - least_gain)) best = &c;
  }
  return best;
}

std::string beyond_in_words(const doc::Advice& a, const doc::Candidate* best, double least_gain,
                            const Evaluator& evaluator) {
  if (!best) return "";
  const doc::Candidate& own = a.candidates.front();
  const double gain = 1 - best->target_s->value / own.target_s->value;
  const auto verdict = verdict_of(own, *best, least_gain);
  if (verdict == doc::AdviceVerdict::do_nothing)
    return fmt::format(
        "linerate.torch would add nothing: the fastest of its other strategies, {}, takes {}.",
        best->strategy, format_time(best->step_s->value));
  const bool is_sure =
      verdict == doc::AdviceVerdict::change && a.confidence != doc::Confidence::low &&
      own.step_s->value - best->step_s->value > unmeasured_messages_s(*best, evaluator).value_or(0);
  return fmt::format("linerate.torch {} add strategy=\"{}\": {}, {} less time than {}{}.",
                     is_sure ? "would" : "may", best->strategy, format_time(best->step_s->value),
                     format_percent(gain), own.named.empty() ? own.strategy : own.named,
                     best->trains ? "" : "; linerate only simulates it");
}

void add_unpriced_options(const doc::Workload& workload, doc::Advice& a) {
  const auto in_use = std::ranges::find(a.candidates, a.current, &doc::Candidate::strategy);
  if (workload.accumulation == 1 && in_use != a.candidates.end() && in_use->step_s)
    a.notes.push_back(
        fmt::format("no_sync() around the first of every two backward passes exchanges once for "
                    "both. A pass then takes {} instead of {}, and the batch is twice as large.",
                    format_time((in_use->step_s->value + workload.one_rank_step_s()) / 2),
                    format_time(in_use->step_s->value)));
  a.notes.push_back(
      fmt::format("Not priced: gradient_as_bucket_view=True saves {} a rank and the copies of "
                  "gradients into buckets. static_graph=True and find_unused_parameters=False save "
                  "the search for unused parameters, if every step uses all parameters.",
                  format_size(static_cast<double>(workload.gradient_bytes()))));
  a.notes.emplace_back(
      "Hooks: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook), and "
      "ddp.register_comm_hook(PowerSGDState(process_group=None, matrix_approximation_rank=4), "
      "powerSGD_hook).");
}

}  // namespace

Framework parse_framework(const std::string& text) {
  if (text == "pytorch") return Framework::pytorch;
  throw UsageError(
      fmt::format("unknown framework \"{}\"; known: pytorch. Leave it out to consider all of "
                  "linerate's strategies",
                  text));
}

std::optional<std::string> in_pytorch(const doc::Strategy& strategy) {
  if (strategy.exchange.name != kDdp) return std::nullopt;
  std::string text = "DDP(model";
  for (const auto& [key, value] : strategy.exchange.options) {
    const auto argument = argument_of(key, value);
    if (!argument) return std::nullopt;
    if (!argument->empty()) text += ", " + *argument;
  }
  const auto hook = hook_of(strategy);
  if (!hook) return std::nullopt;
  return text + ")" + (hook->empty() ? "" : " with " + *hook);
}

std::vector<doc::Strategy> restrict_to(Framework framework, const AdviseOptions& options,
                                       SearchSpace& space) {
  if (framework == Framework::linerate) return {};
  for (const doc::Strategy& asked : options.more)
    if (!in_pytorch(asked))
      throw UsageError(
          fmt::format("--strategy \"{}\": PyTorch's DDP cannot do it. It can do ddp, "
                      "ddp(bucket_cap_mb=MB), both with wire=fp16 or wire=bf16, and "
                      "ddp+powersgd(rank=R). Leave --framework out to consider it",
                      doc::to_text(asked)));
  doc::Component exchange = options.current.exchange;
  if (exchange.name != kDdp) exchange = {std::string(kDdp), {}};
  std::erase_if(exchange.options, [](const auto& option) { return option.first == "wire"; });
  std::vector<doc::Strategy> all = std::move(space.strategies), beyond;
  for (const std::string_view wire : kHooks) {
    all.push_back({exchange, {}});
    all.back().exchange.options.emplace_back("wire", wire);
  }
  space.strategies = {all.front()};
  for (std::size_t i = 1; i < all.size(); ++i) {
    const doc::Strategy strategy = as_cap(all[i]);
    std::vector<doc::Strategy>& list = in_pytorch(strategy) ? space.strategies : beyond;
    const auto is_same = [&](const doc::Strategy& s) {
      return doc::to_text(s) == doc::to_text(strategy);
    };
    if (std::none_of(list.begin(), list.end(), is_same)) list.push_back(strategy);
  }
  return beyond;
}

void put_into_words(Evaluator& evaluator, const std::vector<doc::Strategy>& beyond,
                    doc::Advice& a) {
  const AdviseOptions& options = evaluator.options();
  if (options.framework == Framework::linerate) return;
  a.framework = "pytorch";
  for (doc::Candidate& c : a.candidates)
    c.named = in_pytorch(doc::parse_strategy(c.strategy)).value_or("");
  const std::vector<Judged> judged =
      judge_all(evaluator, rankable(beyond, options), options.bandwidth);
  a.beyond = beyond_in_words(a, best_of(judged, options.least_gain), options.least_gain, evaluator);
  const Wording wording(a);
  for (std::string* text : {&a.sentence, &a.present}) wording.translate(*text);
  for (std::string& note : a.notes) wording.translate(note);
  for (doc::Candidate& c : a.candidates) wording.translate(c.reason);
  for (doc::Ceiling& c : a.ceilings) wording.translate(c.reason);
  for (doc::Straggler& s : a.stragglers) wording.translate(s.reason);
  add_unpriced_options(evaluator.workload(), a);
  if (!wording.compressions().empty())
    a.notes.push_back(fmt::format("--steps-to-target takes linerate's words for the hooks: {}.",
                                  join(wording.compressions(), ", ")));
}

}  // namespace linerate::advise
