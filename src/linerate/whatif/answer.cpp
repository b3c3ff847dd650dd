// Answers a Question. Its lists (strategies, rank counts, bandwidths, ratios) span a grid, and
// every point of the grid is planned and simulated. The last list runs fastest. An example: 2
// strategies, 3 rank counts, 2 bandwidths and 1 ratio make 12 predictions. Prediction 7 is
// bandwidth 7 % 2 = 1, rank count 3 % 3 = 0, and strategy 1.
//
// Plans are made as rarely as possible. A PlanSeries keeps what the Plans of a strategy share, and
// a strategy that does not plan by cost has one Plan for all bandwidths. A thread takes a whole row
// of the grid, a strategy and a rank count. Answers and notes are put together in the order of one
// thread.
#include "linerate/whatif/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/plan/kfac/curvature.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "linerate/whatif/preset_model.hpp"

namespace linerate::whatif {
namespace {

constexpr int kMostRanksDrawn = 4096;

/// A scaling factor that exceeds 1 by rounding is 1. Sums of the same durations in another order
/// differ in their last digits.
double without_rounding(double factor) {
  constexpr double kRounding = 1e-12;
  return factor > 1 && factor <= 1 + kRounding ? 1 : factor;
}

/// A sentence on the ranks below `ranks` whose speed in the Cluster is not the Workload's; empty:
/// none.
std::string about_rank_speeds(const doc::Cluster& cluster, int ranks) {
  std::set<int> others;
  for (const doc::RankSpeed& s : cluster.rank_speeds)
    if (s.rank >= 0 && s.rank < ranks && (s.compute_factor != 1 || s.delay_s != 0))
      others.insert(s.rank);
  if (others.empty()) return "";
  return fmt::format(
      "The Cluster's rank_speeds are counted in: {} {} {} other times than the Workload says.",
      others.size() == 1 ? "rank" : "ranks", fmt::join(others, ", "),
      others.size() == 1 ? "has" : "have");
}

// One question on its way. The constructor reads the lists and refuses what no prediction can have;
// run() answers all combinations, plan_one() plans the only one.
class Asking {
 public:
  Asking(const doc::Workload& workload, const doc::Cluster& cluster, const Question& question,
         CodecCosts costs = CodecCosts::known_elsewhere)
      : workload_(valid(workload, cluster)),
        question_(question),
        left_out_(left_out(workload, cluster, question.preset)),
        base_(cost_model(workload, cluster, question, costs)),
        one_rank_s_(workload.step_s || workload.forward_s
                        ? std::optional(workload.one_rank_step_s())
                        : std::nullopt) {
    for (const doc::Strategy& s : question.strategies) add_once(s);
    if (strategies_.empty()) strategies_ = {default_strategy(question.preset, workload)};
    ranks_ = once(question.ranks);
    if (ranks_.empty()) ranks_ = {cluster.ranks};
    if (question.preset == Preset::zhang2020 && question.latency && question.latency->value > 0)
      throw UsageError(
          "--latency: the model of --preset zhang2020 is a ring without latency; leave it out");
    for (const int n : ranks_)
      if (n < 1)
        throw UsageError(question.ranks.empty()
                             ? "--ranks: expected a number of ranks, found none; give --ranks 8"
                             : fmt::format("--ranks: expected at least 1, found {}", n));
    for (const BytesPerSecond b : once(question.bandwidths)) bandwidths_.emplace_back(b);
    if (bandwidths_.empty()) bandwidths_.emplace_back();
    for (const double c : once(question.compression_ratios)) ratios_.emplace_back(c);
    if (ratios_.empty()) ratios_.emplace_back();
  }

  // Notes on the whole question come first, then those of strategies, rank counts and networks, in
  // the grid's order.
  doc::Predictions run() {
    describe();
    note_cost_model();
    note_rank_speeds();
    if (divides_transfers() && std::any_of(ratios_.begin(), ratios_.end(),
                                           [](const auto& ratio) { return ratio.value_or(1) > 1; }))
      note(
          "zhang2020 divides transfers by the compression ratio, so encoding and decoding count as "
          "taking no time");
    plan::require_gradients(workload_);
    if (!one_rank_s_)
      note(
          "the Workload does not know its one-rank step, so step times and scaling factors are "
          "unknown; give --step-time");
    if (!workload_.step_origin.empty()) note(doc::step_in_words(workload_));
    if (workload_.recorded && workload_.current.empty())
      note(
          fmt::format("no strategy of linerate's exchanges as the job did when it was recorded. "
                      "Its step took {} on {} ranks; compare the predictions with that",
                      format_time(workload_.recorded->step_s), workload_.recorded->ranks));
    if (workload_.split_by_flops) note(std::string(cost::kSplitByFlops));
    if (workload_.turns() > 1 && question_.preset != Preset::agarwal2021)
      note(
          fmt::format("the job trains {} models in turn: each exchanges its own gradients, and the "
                      "next backward pass waits for them",
                      workload_.turns()));
    if (const auto others = workload_.other_collectives.size();
        others > 0 && question_.preset != Preset::agarwal2021)
      note(
          fmt::format("the step includes the Workload's other_collectives, {}, and the computation "
                      "waits for {}",
                      others, others == 1 ? "it" : "each"));
    predict_all();
    note_nominal();
    return std::move(answer_);
  }

  // What the answer is about: a saved answer has to say it without its documents.
  void describe() {
    answer_.workload = workload_.name;
    answer_.gradients = static_cast<std::int64_t>(workload_.gradients.size());
    answer_.gradient_bytes = workload_.gradient_bytes();
    answer_.one_rank_step_s = one_rank_s_;
    answer_.preset = name_of(question_.preset);
    for (std::string& text : left_out_) note(std::move(text));
    if (question_.preset == Preset::agarwal2021)
      note(
          fmt::format("gamma {:g}, epsilon {:g}. With the \"needed ratio\" a step takes at most 1 "
                      "+ epsilon times the slowed backward pass. \"encode budget\" is the time "
                      "that encode + decode may take.",
                      question_.agarwal.gamma, question_.agarwal.epsilon));
  }

  /// The combination at this position of the answer, as a question of its own.
  Question only(std::size_t at) const {
    Question one = question_;
    const auto take = [&at](const auto& list) {
      const auto& value = list[at % list.size()];
      at /= list.size();
      return value;
    };
    if (const auto ratio = take(ratios_)) one.compression_ratios = {*ratio};
    if (const auto bandwidth = take(bandwidths_)) one.bandwidths = {*bandwidth};
    one.ranks = {take(ranks_)};
    LINERATE_CHECK(at < strategies_.size(), fmt::format("{}", at));
    one.strategies = {strategies_[at]};
    return one;
  }

  // The Plan of the only combination. For training it has all that training does, and costs are the
  // Cluster's own. A cost known from elsewhere would choose what ranks exchange by another
  // machine's numbers.
  Planned plan_one(bool training) {
    if (strategies_.size() * ranks_.size() * bandwidths_.size() * ratios_.size() != 1)
      throw UsageError(
          "a Plan or Timeline holds one combination; give one strategy, one rank "
          "count, one bandwidth and one ratio");
    if (question_.preset == Preset::agarwal2021)
      throw UsageError(
          "agarwal2021 is a formula, so it has no Plan and no Timeline; leave --preset out to save "
          "them");
    const plan::Planner planner = planner_of(strategies_.front(), ratios_.front());
    cost::CostModel model = model_of(bandwidths_.front(), ratios_.front());
    plan::PlanOptions options;
    if (training) {
      refuse_training_of(planner);
      options.housekeeping = plan::Housekeeping{workload_.buffer_bytes};
    }
    doc::Plan plan = planner.plan(workload_, model, ranks_.front(), options);
    std::vector<std::string> notes;
    if (training && !workload_.other_collectives.empty())
      notes.emplace_back(
          "the Workload's other_collectives are left out, because in training the model sends its "
          "own");
    if (!training) {
      notes = planner.coding_caveats(workload_);
    } else if (std::string dense = planner.left_dense(workload_); !dense.empty()) {
      notes.push_back(std::move(dense));
    }
    if (const auto kfac = plan::kfac_of(strategies_.front())) {
      if (std::string left = plan::too_large(*kfac, workload_); !left.empty())
        notes.push_back(std::move(left));
    }
    if (std::string text = note_of_nominal(ranks_.front());
        !text.empty() && !model.cluster().nominal->name.empty())
      notes.insert(notes.begin(), std::move(text));
    return {std::move(plan), std::move(model), std::move(notes)};
  }

 private:
  static const doc::Workload& valid(const doc::Workload& workload, const doc::Cluster& cluster) {
    validate(workload);
    validate(cluster);
    return workload;
  }
  /// Values in the order in which they are first given.
  template <typename Value>
  static std::vector<Value> once(const std::vector<Value>& given) {
    std::vector<Value> kept;
    for (const Value& value : given)
      if (std::find(kept.begin(), kept.end(), value) == kept.end()) kept.push_back(value);
    return kept;
  }
  /// Adds a strategy unless the same one is there: kfac(spd) is ddp+kfac(spd).
  void add_once(const doc::Strategy& strategy) {
    const auto text = [](const doc::Strategy& s) { return doc::to_text(plan::with_exchange(s)); };
    if (std::ranges::find(strategies_, text(strategy), text) == strategies_.end())
      strategies_.push_back(strategy);
  }

  static void refuse_training_of(const plan::Planner& planner) {
    if (!planner.traits().runs.train)
      throw UsageError(fmt::format("--training: linerate train refuses {}: {}", planner.text(),
                                   planner.traits().why_not_train));
  }

  /// A strategy at one ratio, and what its predictions share. `series` keeps its memory from Plan
  /// to Plan.
  struct Planning {
    Planning(const doc::Strategy& strategy, const doc::Workload& workload, const Asking& asking,
             std::optional<double> ratio)
        : changes_convergence(plan::traits_of(strategy).changes_convergence),
          planner(asking.planner_of(strategy, ratio)),
          compressed(planner.compressed(workload)),
          series(planner, workload, {.first_step = false}) {}

    /// The Plan for this network. It is the one made last if no network changes it.
    const doc::Plan& plan(const cost::CostModel& model, int ranks) {
      if (!last || last->ranks != ranks || planner.plans_by_cost())
        last = &series.plan(model, ranks);
      return *last;
    }

    bool changes_convergence;  // the strategy, whatever the ratio
    plan::Planner planner;
    std::optional<plan::Compressed> compressed;
    plan::PlanSeries series;
    const doc::Plan* last = nullptr;
    int noted_ranks = 0;  // whose caveats are said
  };

  /// What a thread keeps from one rank count to the next.
  struct Worker {
    const doc::Strategy* strategy = nullptr;
    std::vector<std::unique_ptr<Planning>> by_ratio;  // of that strategy
    sim::Simulator simulator;
    cost::PriceNotes priced;
    std::set<std::pair<int, double>> networks;  // ranks and bandwidth, whose notes are said
  };
  /// Of one strategy and one rank count.
  struct Answers {
    std::vector<doc::Prediction> predictions;
    std::vector<std::string> notes;
  };

  /// Threads take strategies and rank counts. Answers and notes keep the order of one thread. A
  /// thread is worth its start only for hundreds of predictions.
  void predict_all() {
    const std::size_t parts = strategies_.size() * ranks_.size();
    const std::size_t each = bandwidths_.size() * ratios_.size();
    constexpr std::size_t kWorthAThread = 500;
    std::vector<Worker> workers(std::clamp<std::size_t>(parts * each / kWorthAThread, 1,
                                                        std::thread::hardware_concurrency()));
    std::vector<Answers> answers(parts);
    side_by_side(parts, workers.size(), [&](std::size_t i, std::size_t worker) {
      answers[i].predictions.reserve(each);
      predict_part(strategies_[i / ranks_.size()], ranks_[i % ranks_.size()], workers[worker],
                   answers[i]);
    });
    answer_.predictions.reserve(parts * each);
    for (Answers& part : answers) {
      std::move(part.predictions.begin(), part.predictions.end(),
                std::back_inserter(answer_.predictions));
      for (std::string& text : part.notes) note(std::move(text));
    }
    if (question_.preset != Preset::agarwal2021)
      for (std::string& text : cost::outlier_notes(base_)) note(std::move(text));
    cost::PriceNotes priced;
    for (const Worker& worker : workers) priced.add(worker.priced);
    for (std::string& text : priced.sentences()) note(std::move(text));
  }

  // Answers all bandwidths and ratios of one strategy and rank count. The Plannings stay while the
  // worker gets the same strategy.
  void predict_part(const doc::Strategy& strategy, int ranks, Worker& worker,
                    Answers& answers) const {
    if (std::exchange(worker.strategy, &strategy) != &strategy) {
      worker.by_ratio.clear();
      worker.by_ratio.resize(ratios_.size());
    }
    for (const auto& bandwidth : bandwidths_)
      for (std::size_t r = 0; r < ratios_.size(); ++r) {
        std::unique_ptr<Planning>& planning = worker.by_ratio[r];
        if (!planning)
          planning = std::make_unique<Planning>(strategy, workload_, *this, ratios_[r]);
        predict(*planning, ranks, model_of(bandwidth, ratios_[r]), worker, answers);
      }
  }

  // A ratio belongs to the codec, except under zhang2020: it only divides transfers there.
  bool divides_transfers() const { return question_.preset == Preset::zhang2020; }

  plan::Planner planner_of(const doc::Strategy& strategy, std::optional<double> ratio) const {
    plan::Planner planner(strategy, base_.cluster());
    if (ratio && !divides_transfers()) planner.set_compression_ratio(*ratio);
    return planner;
  }

  cost::CostModel model_of(std::optional<BytesPerSecond> bandwidth,
                           std::optional<double> ratio) const {
    cost::CostOptions options = base_.options();
    if (bandwidth) options.bandwidth = bandwidth;
    if (ratio && divides_transfers()) options.compression_ratio = *ratio;
    return base_.with(std::move(options));
  }

  // One point of the grid. A closed formula fills in its own columns; the rest is simulated.
  void predict(Planning& planning, int ranks, const cost::CostModel& model, Worker& worker,
               Answers& answers) const {
    const plan::Planner& planner = planning.planner;
    doc::Prediction p;
    p.strategy = planner.text();
    p.changes_convergence = planning.changes_convergence;
    p.ranks = ranks;
    p.compression_ratio = model.options().compression_ratio;
    if (planning.compressed) p.compression_ratio *= planning.compressed->ratio;
    if (const double line = model.line_bytes_per_s(); line > 0) p.bandwidth_bit_per_s = 8 * line;
    if (question_.preset == Preset::agarwal2021) {
      answer_agarwal(workload_, planner, model, question_.agarwal, p);
      note_what_agarwal_leaves_out(planner, answers.notes);
    } else {
      simulate(planning, model, worker, answers.notes, p);
    }
    // Without a forward pass these would be of backward and exchange alone.
    if (!one_rank_s_) {
      p.step_s.reset();
      p.parts_s.reset();
      p.exposed_communication_s.reset();
      p.scaling_factor.reset();
    }
    if (p.scaling_factor) p.scaling_factor = without_rounding(*p.scaling_factor);
    answers.predictions.push_back(std::move(p));
  }

  // A worker says the notes of a rank count, and of a network, once.
  void simulate(Planning& planning, const cost::CostModel& model, Worker& worker,
                std::vector<std::string>& notes, doc::Prediction& p) const {
    const doc::Plan& plan = planning.plan(model, p.ranks);
    const sim::SimResult result = worker.simulator.simulate_exposure(plan, model);
    p.step_s = sim::predicted_step(result, plan, workload_, model, worker.simulator,
                                   planning.planner.coding_spread())
                   .step_s;
    p.communication_s = result.communication_s;
    p.exposed_communication_s = result.exposed_communication_s;
    if (!plan.blocks.empty()) p.parts_s = step_parts(plan, model, result.step_s, worker.simulator);
    if (one_rank_s_ && result.step_s > 0) p.scaling_factor = *one_rank_s_ / result.step_s;
    worker.priced.add(plan, model);
    if (std::exchange(planning.noted_ranks, p.ranks) != p.ranks)
      for (std::string& text : planning.planner.caveats(workload_, model, p.ranks))
        notes.push_back(std::move(text));
    const auto network = std::pair(p.ranks, model.network_bytes_per_s());
    if (!worker.networks.insert(network).second) return;
    if (question_.preset == Preset::none) worker.priced.add_closed_form(model, p.ranks);
    for (std::string& text : cost::extrapolation_notes(model, p.ranks))
      notes.push_back(std::move(text));
  }

  /// Puts the note on a network that is known by its kind alone before the other notes.
  void note_nominal() {
    if (question_.preset != Preset::none) return;
    const int most = *std::max_element(ranks_.begin(), ranks_.end());
    if (std::string text = note_of_nominal(most); !text.empty())
      answer_.notes.insert(answer_.notes.begin(), std::move(text));
  }

  /// What to measure first, by the interval of the first strategy at so many ranks. The Plan is
  /// made anew for each Cluster that is tried, because prices may change it.
  std::string note_of_nominal(int ranks) const {
    const cost::CostOptions options = model_of(bandwidths_.front(), ratios_.front()).options();
    return cost::nominal_note(base_.cluster(), ranks, [&](const doc::Cluster& known) {
      const cost::CostModel model(known, options);
      plan::Planner planner(strategies_.front(), known);
      if (ratios_.front() && !divides_transfers()) planner.set_compression_ratio(*ratios_.front());
      const doc::Plan plan = planner.plan(workload_, model, ranks, {.first_step = false});
      sim::Simulator simulator;
      const doc::Bounded step_s =
          sim::predicted_step(simulator.simulate(plan, model), plan, workload_, model, simulator,
                              planner.coding_spread())
              .step_s;
      return step_s.high_or_value() - step_s.low_or_value();
    });
  }

  void note_rank_speeds() {
    if (question_.preset != Preset::none) return;
    const int most = *std::max_element(ranks_.begin(), ranks_.end());
    note(about_rank_speeds(base_.cluster(), most));
  }

  /// Says when --cost-model prices nothing.
  void note_cost_model() {
    if (question_.all_reduce == Question().all_reduce) return;
    const auto& nominal = base_.cluster().nominal;
    if (nominal && !nominal->name.empty())
      note("--cost-model prices nothing here, because the law is part of the kind of network");
    if (base_.cluster().collectives.empty()) return;
    if (std::all_of(ranks_.begin(), ranks_.end(), [this](int ranks) {
          return base_.source(Collective::all_reduce, ranks) != cost::PriceSource::links;
        }))
      note("--cost-model prices nothing here, because the Cluster's measurements do");
  }

  void note_what_agarwal_leaves_out(const plan::Planner& planner,
                                    std::vector<std::string>& notes) const {
    if (planner.compressed(workload_)) {
      notes.push_back(
          "agarwal2021 encodes and decodes after backward, on the device that computes, so on= has "
          "no effect");
      for (std::string& text : planner.coding_caveats(workload_)) notes.push_back(std::move(text));
    }
    if (planner.wire())
      notes.push_back(
          "agarwal2021: wire= makes the dense exchange smaller, and casts take no time in it");
  }

  // Each sentence once: many combinations have the same thing to say. None is empty.
  void note(std::string text) {
    auto& notes = answer_.notes;
    if (!text.empty() && std::ranges::count(notes, text) == 0) notes.push_back(std::move(text));
  }

  const doc::Workload& workload_;
  const Question& question_;
  std::vector<std::string> left_out_;  // by the preset, of the documents
  cost::CostModel base_;
  std::optional<double> one_rank_s_;
  std::vector<doc::Strategy> strategies_;
  std::vector<int> ranks_;
  std::vector<std::optional<BytesPerSecond>> bandwidths_;
  std::vector<std::optional<double>> ratios_;
  doc::Predictions answer_;
};

}  // namespace

Planned plan_one(const doc::Workload& workload, const doc::Cluster& cluster,
                 const Question& question, bool training) {
  const CodecCosts costs = training ? CodecCosts::own : CodecCosts::known_elsewhere;
  return Asking(workload, cluster, question, costs).plan_one(training);
}

Question only(const doc::Workload& workload, const doc::Cluster& cluster, const Question& question,
              std::size_t prediction) {
  return Asking(workload, cluster, question).only(prediction);
}

doc::Timeline timeline_of(const Planned& planned, const doc::Workload& workload) {
  return sim::predicted_timeline(planned.plan, workload, planned.model);
}

// Every list keeps its first value. Thousands of ranks cannot be drawn.
std::optional<doc::Timeline> first_timeline(const doc::Workload& workload,
                                            const doc::Cluster& cluster, Question question) {
  if (question.preset == Preset::agarwal2021) return std::nullopt;
  const auto keep_first = [](auto& list) {
    if (list.size() > 1) list.resize(1, list.front());
  };
  keep_first(question.strategies);
  keep_first(question.ranks);
  keep_first(question.bandwidths);
  keep_first(question.compression_ratios);
  const Planned planned = plan_one(workload, cluster, question);
  if (planned.plan.ranks > kMostRanksDrawn) return std::nullopt;
  doc::Timeline t = timeline_of(planned, workload);
  t.notes.push_back("the first combination asked about");
  if (const double line = planned.model.line_bytes_per_s(); line > 0)
    t.notes.back() += ", at " + format_bit_rate(line);
  return t;
}

double seconds_of(const Planned& planned, const doc::Task& task) {
  const doc::Plan& plan = planned.plan;
  return sim::Prices(planned.model, plan.ranks)
      .seconds_of_part(task, plan.group_of(task).size_of_part(0, plan.ranks));
}

doc::Predictions ask(const doc::Workload& workload, const doc::Cluster& cluster,
                     const Question& question) {
  return Asking(workload, cluster, question).run();
}

}  // namespace linerate::whatif
