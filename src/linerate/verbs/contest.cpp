// The measurement of `linerate evaluate`. Baselines first find their best bucket size, so that no
// compressor wins against a badly tuned one. Then all strategies take turns, a round of some steps
// each. A machine that is slow for a minute slows a round of every strategy, and ratios within a
// round stay true. The baseline runs twice in each round; the difference of the two is the noise
// floor.
#include "linerate/verbs/contest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/compare/accuracy.hpp"
#include "linerate/compare/step_table.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/rehearse.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/verbs/rehearse.hpp"

namespace linerate::verbs {
namespace {

constexpr const char* kBucket = "bucket";
constexpr const char* kWire = "wire";

/// A figure of a run, and its values in a round: one a step, or one alone. Times are in seconds.
struct Measured {
  double doc::TimedRun::*of_run;
  compare::Column (*of_round)(compare::StepTable& table, const Round& round);
};
using Table = compare::StepTable;
constexpr std::array kMeasured = {
    Measured{&doc::TimedRun::encode_s,
             [](Table& t, const Round&) { return t.kinds[doc::TaskKind::encode]; }},
    Measured{&doc::TimedRun::decode_s,
             [](Table& t, const Round&) { return t.kinds[doc::TaskKind::decode]; }},
    Measured{&doc::TimedRun::communication_s,
             [](Table& t, const Round&) { return t.communication_s; }},
    Measured{&doc::TimedRun::exposed_s, [](Table& t, const Round&) { return t.exposed_s; }},
    Measured{&doc::TimedRun::sent_bytes,
             [](Table&, const Round& round) { return compare::Column{round.sent_bytes}; }},
};

// A strategy in the contest: its results so far, how to run a round of it, and what its rounds
// measured.
struct Entry {
  doc::TimedRun run;
  RunRound run_round;
  std::array<compare::Column, kMeasured.size()> columns;  // of kMeasured
};

doc::Strategy with_option(doc::Strategy s, const char* key, const std::string& value) {
  std::erase_if(s.exchange.options, [&](const auto& o) { return o.first == key; });
  s.exchange.options.emplace_back(key, value);
  return s;
}

/// The exchange as given, then with each bucket size that is worth a trial. A size in its text
/// stays.
std::vector<std::string> to_try(const doc::Strategy& base, std::int64_t gradient_bytes) {
  std::vector<std::string> all = {doc::to_text(base)};
  if (base.exchange.find(kBucket)) return all;
  for (const std::string& size : compare::bucket_ladder(gradient_bytes)) {
    try {
      const doc::Strategy s = with_option(base, kBucket, size);
      static_cast<void>(plan::traits_of(s));
      all.push_back(doc::to_text(s));
    } catch (const UsageError&) {  // sizes are not an option of every exchange
    }
  }
  return all;
}

// Notes whether the compressor's payloads can be summed, and which options it has.
void describe_compressor(doc::TimedRun& run) {
  for (const doc::Component& extra : doc::parse_strategy(run.strategy).extras) {
    if (!plan::is(extra, plan::Extra::compressor)) continue;
    run.is_summable = compress::is_summable(*compress::make_compressor(extra));
    run.options = compress::options_of(extra.name);
  }
}

// Adds a round's steps to the entry. Rank 0 alone has the timeline of all ranks. A strategy that
// encodes nothing has no such steps.
void add_round(Entry& entry, const Round& round) {
  compare::StepTable table = compare::tabulate(round.timeline, 0);
  entry.run.round_step_s.push_back(median(table.step_s));
  for (std::size_t c = 0; c < kMeasured.size(); ++c)
    for (const double value : kMeasured[c].of_round(table, round))
      entry.columns[c].push_back(std::isnan(value) ? 0 : value);
}

struct Contest {
  std::vector<doc::TimedRun> run() {
    const doc::Strategy base = doc::parse_strategy(options.exchange);
    const std::string fp32 = tuned(base);
    const std::string half = tuned(with_option(base, kWire, options.wire));
    std::vector<Entry> all;
    add(all, fp32, doc::Role::fp32);
    add(all, half, doc::Role::sixteen_bit);
    add(all, fp32, doc::Role::repeat);
    for (const std::string& candidate : options.candidates)
      add(all, strategy_of(candidate, fp32), doc::Role::candidate);
    take_turns(all, options.rounds, "timing");
    return agreed(all);
  }

  // Prepares it at once, as trainings of all strategies stay in memory and take turns.
  void add(std::vector<Entry>& to, const std::string& strategy, doc::Role role) {
    if (progress) progress("preparing " + strategy);
    Entry& entry = to.emplace_back();
    entry.run.strategy = strategy;
    entry.run.role = role;
    describe_compressor(entry.run);
    entry.run_round = prepare(strategy);
  }

  /// Runs the rounds. With four strategies the first round's order is 0, 1, 2, 3, the second
  /// round's 1, 2, 3, 0. So a strategy that leaves the machine warm or its caches full does not
  /// always precede the same one.
  void take_turns(std::vector<Entry>& all, int rounds, const std::string& what) {
    for (int r = 0; r < rounds; ++r)
      for (std::size_t i = 0; i < all.size(); ++i) {
        Entry& entry = all[(i + to_index(r)) % all.size()];
        if (progress)
          progress(fmt::format("{}, round {} of {}: {}", what, r + 1, rounds, entry.run.strategy));
        const Round round = entry.run_round(options.steps);
        if (communicator.rank() == 0) add_round(entry, round);
      }
  }

  /// The base with its best bucket size. Rank 0 chooses and tells the others, since rounding must
  /// not make ranks run different strategies. Collective.
  std::string tuned(const doc::Strategy& base) {
    const std::vector<std::string> texts = to_try(base, gradient_bytes);
    if (texts.size() == 1) return texts.front();
    std::vector<Entry> all;
    for (const std::string& text : texts) add(all, text, doc::Role::fp32);
    take_turns(all, options.tuning_rounds, "bucket sizes");
    std::string best;
    if (communicator.rank() == 0) {
      std::vector<doc::TimedRun> runs;
      for (const Entry& entry : all) runs.push_back(entry.run);
      best = texts[compare::fastest(runs)];
    }
    return comm::broadcast_text(communicator, best, "best bucket size");
  }

  // Sends rank 0's results to all ranks, as a document. Collective.
  std::vector<doc::TimedRun> agreed(std::vector<Entry>& all) {
    doc::Evaluation evaluation{{doc::Setup{}}};
    for (Entry& entry : all) {
      if (communicator.rank() == 0)  // medians over all steps of all rounds
        for (std::size_t c = 0; c < kMeasured.size(); ++c)
          entry.run.*kMeasured[c].of_run = entry.columns[c].empty() ? 0 : median(entry.columns[c]);
      evaluation.setups.front().timed.push_back(std::move(entry.run));
    }
    const std::string text =
        comm::broadcast_text(communicator, doc::to_json(evaluation), "timed runs");
    return doc::evaluation_from_json(text, "rank 0's timed runs").setups.front().timed;
  }

  comm::Communicator& communicator;
  const ContestOptions& options;
  std::int64_t gradient_bytes;
  const Prepare& prepare;
  const Progress& progress;
};

}  // namespace

// A compressor alone comes after the tuned exchange: "fp16" is "ddp(bucket=25MiB)+fp16".
std::string strategy_of(const std::string& candidate, const std::string& exchange) {
  doc::Strategy strategy = doc::parse_strategy(candidate);
  const std::vector<std::string> extras = plan::extras().names();
  if (std::ranges::find(extras, strategy.exchange.name) != extras.end()) {
    strategy.extras.insert(strategy.extras.begin(), strategy.exchange);
    strategy.exchange = doc::parse_strategy(exchange).exchange;
  }
  for (const doc::Component& extra : strategy.extras)
    if (plan::is(extra, plan::Extra::compressor))
      static_cast<void>(compress::make_compressor(extra));
  static_cast<void>(plan::traits_of(strategy));
  return doc::to_text(strategy);
}

// Before any rank measures: a contest takes minutes.
void check(const ContestOptions& options) {
  const doc::Strategy base = doc::parse_strategy(options.exchange);
  if (!base.extras.empty() || plan::traits_of(base).changes_convergence)
    throw UsageError(fmt::format(
        "--exchange: expected one that sends fp32, such as ddp; found {}, which changes what is "
        "sent; name it in --compressors",
        options.exchange));
  static_cast<void>(plan::traits_of(with_option(base, kWire, options.wire)));
  std::vector<std::string> known;
  for (const std::string& candidate : options.candidates) {
    known.push_back(strategy_of(candidate, options.exchange));
    if (std::ranges::count(known, known.back()) > 1)
      throw UsageError(fmt::format("--compressors: {} is named twice; name it once", known.back()));
    if (known.back() == doc::to_text(base) ||
        known.back() == doc::to_text(with_option(base, kWire, options.wire)))
      throw UsageError(fmt::format(
          "--compressors: {} is a baseline, which is measured anyway; leave it out", known.back()));
  }
}

std::vector<doc::TimedRun> contest(comm::Communicator& communicator, const ContestOptions& options,
                                   std::int64_t gradient_bytes, const Prepare& prepare,
                                   const Progress& progress) {
  return Contest{communicator, options, gradient_bytes, prepare, progress}.run();
}

namespace {

// Rehearses some steps. The bytes are the mean over the ranks. Collective.
Round run_round(comm::Communicator& communicator, const std::shared_ptr<const doc::Plan>& plan,
                std::int64_t steps) {
  exec::RehearsalOptions options;
  options.steps = static_cast<int>(steps);
  Round round;
  options.sent_bytes = &round.sent_bytes;
  round.timeline = exec::rehearse(communicator, plan, options);
  communicator.all_reduce(comm::buffer(round.sent_bytes), comm::Reduce::sum, "bytes sent")->wait();
  round.sent_bytes /= communicator.size();
  return round;
}

/// If the Cluster has no codec of a compressor's name, its coding takes no time.
void note_free_coding(doc::Setup& setup) {
  for (const doc::TimedRun& run : setup.timed)
    if ((run.role == doc::Role::sixteen_bit || run.role == doc::Role::candidate) &&
        plan::traits_of(doc::parse_strategy(run.strategy)).changes_convergence &&
        run.encode_s + run.decode_s == 0)
      setup.notes.push_back(run.strategy +
                            ": the Cluster has no codec of that name, so encoding and decoding "
                            "take no time here; linerate calibrate --codecs measures them");
}

}  // namespace

// A strategy is prepared by planning it once. Its rounds then rehearse the Plan's steady steps.
NewSetup rehearsed_setup(comm::Communicator& communicator, const doc::Workload& workload,
                         const doc::Cluster& cluster, const ContestOptions& options,
                         doc::Setup place, const Progress& progress) {
  place.model = workload.name;
  place.batch = workload.batch_per_rank;
  place.mode = doc::kRehearsed;
  const auto run = [=, &communicator](doc::Setup& setup) {
    std::optional<BytesPerSecond> line_rate;
    if (setup.line_rate_bytes_per_s) line_rate = BytesPerSecond{*setup.line_rate_bytes_per_s};
    const auto prepare = [&](const std::string& strategy) -> RunRound {
      doc::Plan plan = *verbs::plan_strategy(communicator, workload, cluster,
                                             doc::parse_strategy(strategy), line_rate)
                            .plan;
      plan.warm_up.clear();  // the steps after it are timed
      return [&communicator, plan = std::make_shared<const doc::Plan>(std::move(plan))](
                 std::int64_t steps) { return run_round(communicator, plan, steps); };
    };
    setup.timed = contest(communicator, options, workload.gradient_bytes(), prepare, progress);
    note_free_coding(setup);
  };
  return {std::move(place), run};
}

namespace {

// The file's setups if it exists and may be extended, else none. Tries the folder, so that a long
// run does not fail at its end.
doc::Evaluation opened(const std::filesystem::path& path, bool extend) {
  const bool exists = std::filesystem::exists(path);
  if (exists && !extend)
    throw UsageError(fmt::format(
        "-o {}: the file exists already; add to it with --append, or name another", path.string()));
  doc::Evaluation held;
  if (exists) held = doc::load_evaluation(path);
  make_and_try_folder_of(path);
  return held;
}

}  // namespace

doc::Evaluation run_setups(comm::Communicator& communicator, const std::filesystem::path& path,
                           bool extend, std::vector<NewSetup> setups) {
  const bool writes = communicator.rank() == 0 && !path.empty();
  doc::Evaluation all;
  comm::require_success(communicator, "results", [&] {
    if (!writes) return;
    all = opened(path, extend);
    for (const NewSetup& one : setups)
      for (const doc::Setup& held : all.setups)
        if (const std::string title = doc::title_of(held); title == doc::title_of(one.setup))
          throw UsageError(
              fmt::format("{}: expected a new setup, found {} in it; give this network another "
                          "--label, or another file",
                          path.string(), title));
  });
  for (NewSetup& one : setups) {
    one.run(one.setup);
    all.setups.push_back(std::move(one.setup));
    comm::require_success(communicator, "results", [&] {
      if (writes) doc::save(all, path);
    });
  }
  return all;
}

}  // namespace linerate::verbs
