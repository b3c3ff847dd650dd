// The Plan of a run, made anew as steps are measured. run_planner.hpp tells when. Every decision is
// the same on all ranks, because it comes from numbers that travelled: an all-reduce of times, rank
// 0's order, rank 0's Plan. after_step() goes as follows:
// - After the first step the order of gradients is known. If costs matter, the network is probed.
// - While a Trial runs, a block of steps is counted for ddp or for the strategy (end_block).
// - With K-FAC and with "auto", windows of steps are compared with the prediction, for ever
//   (end_window).
// - Otherwise one window of measured_steps is the last, for strategies that plan by times.
#include "linerate/torch_adapter/run_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "linerate/calibrate/contention_probe.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate::torch_adapter {
namespace {

/// A Cluster for strategies that ignore costs, since a planner reads one anyway.
doc::Cluster nominal_cluster(int ranks) {
  doc::Cluster cluster;
  cluster.name = "nominal";
  cluster.source = "no measurement: this strategy plans by size alone";
  cluster.ranks = ranks;
  cluster.network = {.bandwidth_bytes_per_s = 1.25e9, .latency_s = 50e-6};
  return cluster;
}

/// Adds the collectives with which the plan moves gradients, factors and inverses.
void add_collectives(const doc::Plan& plan, std::vector<Collective>& kinds) {
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks) {
      if (!is_communication(task.kind)) continue;
      const doc::Content content = graph.payloads[to_index(task.first)].content;
      if (content == doc::Content::flags || content == doc::Content::buffers ||
          content == doc::Content::samples || content == doc::Content::counts)
        continue;  // neither gradients nor what stands for them
      const Collective kind = collective_of(task.kind);
      if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    }
}

/// The strategy with ddp in the place of its exchange, and the same wire format.
doc::Strategy with_ddp(doc::Strategy strategy) {
  std::erase_if(strategy.exchange.options, [](const auto& o) { return o.first != "wire"; });
  strategy.exchange.name = "ddp";
  return strategy;
}

/// The median of a step's value over the steps that know it; `otherwise` if none does. Negative
/// values are not known. Of an even number it is the lower one in the middle, because a pause of
/// the program, such as an evaluation, makes a step longer and nothing makes it shorter.
template <typename ValueOf>
double median_of(std::span<const StepTimes> steps, double otherwise, ValueOf value_of) {
  std::vector<double> known;
  for (const StepTimes& step : steps)
    if (const double value = std::invoke(value_of, step); value >= 0) known.push_back(value);
  if (known.empty()) return otherwise;
  const auto middle = known.begin() + (std::ssize(known) - 1) / 2;
  std::ranges::nth_element(known, middle);
  return *middle;
}

/// By parameter; negative for one that had no gradient.
std::vector<double> medians_of_ready(const std::vector<StepTimes>& window) {
  std::vector<double> result;
  for (std::size_t p = 0; p < window.front().ready_s.size(); ++p)
    result.push_back(median_of(window, -1, [p](const StepTimes& step) { return step.ready_s[p]; }));
  return result;
}

}  // namespace

RunPlanner::RunPlanner(comm::Communicator& communicator, std::vector<doc::Gradient> parameters,
                       Options options)
    : communicator_(communicator),
      parameters_(std::move(parameters)),
      options_(std::move(options)) {
  const bool chooses = plan::is(options_.strategy.exchange, plan::Extra::automatic);
  if (chooses) {
    doc::Component& exchange = options_.strategy.exchange;
    if (!exchange.options.empty())
      throw UsageError(fmt::format(
          "strategy {}: auto takes the place of an exchange and has no options; name the "
          "compressors that it may use after an exchange: \"ddp+{}\"",
          doc::to_text(options_.strategy), doc::to_text(exchange)));
    exchange = {"ddp", {}};
  }
  traits_ = plan::traits_of(options_.strategy);
  if (!traits_.runs.train)
    throw UsageError(
        fmt::format("strategy {}: it cannot train: {}; simulate it with linerate whatif",
                    doc::to_text(options_.strategy), traits_.why_not_train));
  workload_.name = "training";
  workload_.source = "linerate::torch_adapter::DataParallel";
  const auto count = static_cast<std::int32_t>(parameters_.size());
  for (std::int32_t p = count - 1; p >= 0; --p) workload_.gradients.push_back(gradient_of(p, 0));
  if (options_.second_order) {
    // Each is a task of its own, so that a factor can stand before its layer.
    for (const std::string& name : options_.second_order->layers)
      workload_.layers.push_back({.name = name, .forward_s = 0});
    workload_.blocks = options_.second_order->blocks;
  }
  if (!chooses && tries() &&
      plan::traits_of({options_.strategy.exchange, {}}).plans_by == plan::PlansBy::cost) {
    static_cast<void>(plan_of(options_.strategy));  // refuses what it refuses before any step
    begin_trial();
  } else {
    make_plan();
  }
  if (chooses) add_candidates();
}

bool RunPlanner::tries() const {
  return std::isfinite(options_.most_above_ddp) && !options_.second_order &&
         communicator_.size() > 1 && options_.measured_steps >= 1;
}

void RunPlanner::begin_trial() {
  tried_ = options_.strategy;
  trial_result_.reset();
  options_.strategy = with_ddp(options_.strategy);
  trial_.emplace();
  make_plan();
}

/// "auto" may choose every exchange without options that can be planned with the extras as they
/// are.
void RunPlanner::add_candidates() {
  for (const auto& line : plan::exchanges().lines()) {
    doc::Strategy candidate = options_.strategy;
    candidate.exchange = {line.name, {}};
    try {
      if (!plan::traits_of(candidate).runs.train) continue;
      static_cast<void>(plan_of(candidate));
    } catch (const UsageError&) {  // what follows the exchange does not go with it
      continue;
    }
    candidates_.push_back(std::move(candidate));
  }
}

doc::Gradient RunPlanner::gradient_of(std::int32_t p, double ready_s) const {
  doc::Gradient gradient = parameters_[to_index(p)];
  gradient.registration = p;
  gradient.ready_s = ready_s;
  return gradient;
}

bool RunPlanner::after_step(StepTimes times) {
  ++steps_;
  if (settled_) return false;
  const bool first = steps_ == 1;
  window_.push_back(std::move(times));
  if (!first && trial_)
    return window_.size() == to_index(options_.measured_steps + 1) && end_block();
  if (!first && watches()) return is_window_full() && end_window();
  const int measured = watches() ? 1 : plans_by(plan::PlansBy::times) ? options_.measured_steps : 0;
  const bool last = steps_ == 1 + measured;
  if (!first && !last) return false;
  if (first && (plans_by(plan::PlansBy::cost) || !candidates_.empty()) && !options_.cluster)
    probe();
  read_window();
  agree_on_order(medians_of_ready(window_));
  settled_ = last;
  window_.clear();
  if (!plans_by(plan::PlansBy::order)) return false;  // no order is better than another
  make_plan();
  return true;
}

void RunPlanner::read_window() {
  if (options_.enqueued) options_.enqueued->read_times(window_);
}

/// Measures what the collectives of this plan, or of all that "auto" may choose, cost at present.
/// "auto" also measures how they slow the computation, unless a device computes. Collective.
void RunPlanner::probe() {
  std::vector<Collective> kinds;
  add_collectives(*plan_, kinds);
  for (const doc::Strategy& candidate : candidates_) add_collectives(*plan_of(candidate), kinds);
  if (tried_) add_collectives(*plan_of(*tried_), kinds);
  const std::int64_t largest = calibrate::largest_probed(workload_.gradient_bytes());
  const std::unique_ptr<calibrate::CallTimer> timer =
      options_.enqueued ? options_.enqueued->make_timer(largest)
                        : std::make_unique<calibrate::CallTrain>(communicator_, largest);
  doc::Cluster found = calibrate::quick_probe(communicator_, *timer, largest, kinds);
  if (options_.cluster)
    options_.cluster->collectives = std::move(found.collectives);
  else
    options_.cluster = std::move(found);
  if (candidates_.empty() || options_.enqueued) return;
  calibrate::EmulatedTraining load(calibrate::threads_per_rank(communicator_.size()));
  options_.cluster->contention = calibrate::probe_contention(
      communicator_, load, {.exchange = {MiB(1), MiB(4)}, .budget = Duration{0.4}});
}

/// Ends a block of a trial. Either it is the other strategy's turn, or the verdict falls. Both are
/// planned by the order and times of the first block. The first step of a block is not counted,
/// because its memory is new. An example with 5 counted steps: after 24 steps ddp and the strategy
/// have two blocks of 6 each, in turn.
bool RunPlanner::end_block() {
  read_window();
  const double step_s = median_of(std::span(window_).subspan(1), -1, &StepTimes::step_s);
  if (step_s >= 0) (trial_->of_ddp() ? trial_->ddp_s : trial_->strategy_s).push_back(step_s);
  if (++trial_->blocks == 1) agree_on_order(medians_of_ready(window_));
  window_.clear();
  bool takes_ddp = trial_->of_ddp();
  if (trial_->blocks == 2 * Trial::kRounds) {
    const auto agreed = [this](const std::vector<double>& blocks) {
      return mean_over_ranks(blocks.empty() ? 0 : mean(blocks), "steps of a trial");
    };
    trial_result_ = {agreed(trial_->ddp_s), agreed(trial_->strategy_s)};
    takes_ddp = trial_result_->strategy_s > trial_result_->ddp_s * (1 + options_.most_above_ddp);
    gave_up_ = takes_ddp;
    trial_.reset();
    settled_ = candidates_.empty();
    if (!settled_) {  // "auto" goes on from what was measured
      predicted_s_ = expected_s_ = gave_up_ ? trial_result_->ddp_s : trial_result_->strategy_s;
      ++measured_plans_;
      if (gave_up_)  // and never chooses again what the trial refuted
        std::erase_if(candidates_, [this](const doc::Strategy& candidate) {
          return doc::to_text(candidate) == doc::to_text(*tried_);
        });
    }
  }
  options_.strategy = takes_ddp ? with_ddp(*tried_) : *tried_;
  make_plan();
  return true;
}

std::string RunPlanner::trial_in_words() const {
  if (!trial_result_) return "";
  return fmt::format(
      "strategy {} was tried in turn with {}: a step took {:.1f} ms, and {:.1f} ms with {}; {} "
      "runs",
      doc::to_text(*tried_), doc::to_text(with_ddp(*tried_)), 1e3 * trial_result_->strategy_s,
      1e3 * trial_result_->ddp_s, doc::to_text(with_ddp(*tried_)), plan_->strategy);
}

/// Plans if this window is the first, or if its step is not what was expected. If a new plan does
/// not mend the prediction, the measured step is expected from then on. Otherwise one error would
/// cause a new plan after every window. An example with replan_above .2: predicted 100 ms, measured
/// 130 ms, so a new plan is made. It predicts 102 ms. The next window takes 131 ms, about 1 % off
/// 130 ms, and nothing is planned.
bool RunPlanner::end_window() {
  read_window();
  const double measured_s = agreed_step_s();
  const bool planned = predicted_s_.has_value();
  const bool departs = !planned || std::abs(measured_s / expected_s_ - 1) > options_.replan_above;
  const std::uint64_t before = plan_->hash();
  if (departs) {
    agree_on_order(medians_of_ready(window_));
    if (options_.second_order) agree_on_curvature();
    if (!candidates_.empty()) {
      workload_.forward_s =
          mean_over_ranks(median_of(window_, 0, &StepTimes::before_s), "time before backward");
      if (planned) probe();
    }
    plan_on_rank_0();
    expected_s_ = planned && measured_s > 0 ? measured_s : *predicted_s_;
    if (!candidates_.empty()) {  // what is chosen is tried, unless it is ddp or has won before
      const std::string choice = doc::to_text(options_.strategy);
      const bool has_won = tried_ && !gave_up_ && doc::to_text(*tried_) == choice;
      if (tries() && !has_won && choice != doc::to_text(with_ddp(options_.strategy))) begin_trial();
    }
  }
  window_.clear();
  return departs && plan_->hash() != before;
}

/// With K-FAC a window is full after measured_steps updates of factors, and once it has every kind
/// of step. Otherwise after measured_steps steps.
bool RunPlanner::is_window_full() const {
  if (!measures_curvature())
    return window_.size() >= to_index(std::max(options_.measured_steps, 1));
  int updates = 0;
  std::set<std::string_view> kinds;
  for (const StepTimes& times : window_) {
    updates += times.update.factors;
    if (times.step_s >= 0 || options_.enqueued) kinds.insert(plan::name_of(times.update));
  }
  const plan::Kfac kfac = *plan::kfac_of(options_.strategy);
  return updates >= options_.measured_steps && kinds.size() == kfac.updates().size();
}

double RunPlanner::mean_over_ranks(double value, const char* what) {
  communicator_.all_reduce(comm::buffer(value), comm::Reduce::sum, what)->wait();
  return value / communicator_.size();
}

/// The mean step over the cycle and over the ranks, as predictions are. Each kind of step counts
/// with its median, as often as it occurs.
double RunPlanner::agreed_step_s() {
  double step_s = median_of(window_, 0, &StepTimes::step_s);
  if (const auto kfac = plan::kfac_of(options_.strategy); kfac && measures_curvature()) {
    step_s = 0;
    for (std::int64_t s = 0; s < kfac->inverse_interval; ++s) {
      const std::string_view kind = plan::name_of(kfac->update_of_step(s));
      step_s += median_of(window_, 0, [kind](const StepTimes& times) {
        return plan::name_of(times.update) == kind ? times.step_s : -1;
      });
    }
    step_s /= static_cast<double>(kfac->inverse_interval);
  }
  return mean_over_ranks(step_s, "measured steps");
}

/// Takes the candidate whose step is predicted shortest. All ranks have the inputs, but rank 0
/// alone plans and sends its Plan. Otherwise rounding in a search could make plans differ between
/// machines.
void RunPlanner::plan_on_rank_0() {
  std::string text;
  double predicted_s = 0;
  comm::require_success(communicator_, "planning anew", [&] {
    if (communicator_.rank() != 0) return;
    make_plan();
    predicted_s = predict(*plan_);
    double least_s = predicted_s * (1 - kLeastGain);  // the one in force stays unless one gains it
    for (const doc::Strategy& candidate : candidates_) {
      auto plan = plan_of(candidate);
      const double step_s = predict(*plan);
      if (step_s >= least_s) continue;
      predicted_s = least_s = step_s;
      options_.strategy = candidate;
      plan_ = std::move(plan);
    }
    text = doc::to_json(*plan_);
  });
  text = comm::broadcast_text(communicator_, text, "plan of rank 0");
  communicator_.broadcast(comm::buffer(predicted_s), 0, "predicted step")->wait();
  predicted_s_ = predicted_s;
  ++measured_plans_;
  if (communicator_.rank() == 0) return;
  plan_ = std::make_shared<const doc::Plan>(doc::plan_from_json(text, "plan of rank 0"));
  if (!candidates_.empty()) options_.strategy = doc::parse_strategy(plan_->strategy);
  set_order();
}

double RunPlanner::predict(const doc::Plan& plan) const {
  return sim::simulate(plan, cost::CostModel(cluster())).step_s;
}

/// The order is rank 0's. Times are means over ranks, made to ascend along that order. A parameter
/// without a time comes last, in the order of the plan before. An example with two parameters and
/// three ranks: a gets ready at 1, 4 and 1 ms and b at 3, 2 and 4 ms. Rank 0's order is a, b, and
/// the means are 2 and 3 ms.
void RunPlanner::agree_on_order(std::vector<double> ready_s) {
  std::vector<std::int32_t> order = order_;
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
    const double x = ready_s[to_index(a)], y = ready_s[to_index(b)];
    return (x >= 0) != (y >= 0) ? x >= 0 : x < y;
  });
  communicator_.broadcast(comm::buffer(order), 0, "gradient order")->wait();
  std::vector<double> sums(ready_s);
  for (double& s : sums) s = std::max(s, 0.0);
  communicator_.all_reduce(comm::buffer(sums), comm::Reduce::sum, "gradient ready times")->wait();
  workload_.gradients.clear();
  double latest = 0;
  for (const std::int32_t p : order) {
    latest = std::max(latest, sums[to_index(p)] / communicator_.size());
    workload_.gradients.push_back(gradient_of(p, latest));
  }
  workload_.backward_s = latest;
}

doc::Cluster RunPlanner::cluster() const {
  doc::Cluster cluster = options_.cluster.value_or(nominal_cluster(communicator_.size()));
  if (options_.second_order && options_.second_order->cost && !cluster.second_order)
    cluster.second_order = options_.second_order->cost;
  return cluster;
}

void RunPlanner::set_order() {
  order_.clear();
  for (const doc::Gradient& g : workload_.gradients) order_.push_back(g.registration);
}

/// Includes the first step's variants: a step may have to be run again by them.
void RunPlanner::make_plan() {
  set_order();
  plan_ = plan_of(options_.strategy);
}

std::shared_ptr<const doc::Plan> RunPlanner::plan_of(const doc::Strategy& strategy) const {
  return std::make_shared<const doc::Plan>(plan::make_plan(
      workload_, cluster(), strategy, communicator_.size(),
      {.first_step = true, .housekeeping = plan::Housekeeping{options_.buffer_bytes}}));
}

// Agrees on the times of K-FAC's work. Each rank has medians over its window for the layers and
// factors that it worked on. With kfac(mem), for example, one rank alone makes an inverse. So sums
// and counts travel in one all-reduce, and the mean is over the ranks that measured.

namespace {

using Part = std::vector<double> CurvatureTimes::*;

/// Of one part of `count` blocks or factors: medians over the window, and means over the ranks that
/// have it.
std::vector<std::optional<double>> agreed(comm::Communicator& communicator,
                                          std::span<const StepTimes> window, Part part,
                                          std::size_t count) {
  std::vector<double> sums(2 * count, 0);  // then how many have it
  for (std::size_t i = 0; i < count; ++i) {
    const double mine = median_of(window, -1, [&](const StepTimes& step) {
      const bool has = step.curvature && i < ((*step.curvature).*part).size();
      return has ? ((*step.curvature).*part)[i] : -1;
    });
    if (mine >= 0) sums[i] = mine, sums[count + i] = 1;
  }
  communicator.all_reduce(comm::buffer(sums), comm::Reduce::sum, "times of second-order steps")
      ->wait();
  std::vector<std::optional<double>> all(count);
  for (std::size_t i = 0; i < count; ++i)
    if (sums[count + i] > 0) all[i] = sums[i] / sums[count + i];
  return all;
}

/// The times of inverses by dimension: the mean time of one matrix, over all factors of that size.
std::map<std::int64_t, std::vector<double>> by_dimension(
    const std::vector<std::optional<double>>& seconds, const doc::Workload& workload) {
  std::map<std::int64_t, std::vector<double>> all;
  for (std::size_t f = 0; f < seconds.size(); ++f) {
    const auto factor = static_cast<std::int32_t>(f);
    const doc::Block& block = workload.blocks[to_index(doc::block_of_factor(factor))];
    const doc::FactorSide side = doc::side_of_factor(factor);
    if (seconds[f] && block.dense(side))
      all[block.dimension(side)].push_back(*seconds[f] / block.groups);
  }
  return all;
}

}  // namespace

/// The times go into the Workload's layers and blocks, and those of inverses into the cost. A part
/// that no rank measured stays.
void RunPlanner::agree_on_curvature() {
  const std::size_t blocks = workload_.blocks.size();
  const auto forward = agreed(communicator_, window_, &CurvatureTimes::forward_s, blocks);
  const auto factor = agreed(communicator_, window_, &CurvatureTimes::factor_s, 2 * blocks);
  const auto inverses = by_dimension(
      agreed(communicator_, window_, &CurvatureTimes::inverse_s, 2 * blocks), workload_);
  for (std::size_t b = 0; b < blocks; ++b) {
    doc::Block& block = workload_.blocks[b];
    if (forward[b]) workload_.layers[to_index(block.layer)].forward_s = forward[b];
    const auto a = to_index(doc::factor_index(static_cast<std::int32_t>(b), doc::FactorSide::a));
    if (factor[a]) block.factor_a_s = factor[a];
    if (factor[a + 1]) block.factor_g_s = factor[a + 1];
  }
  doc::SecondOrderCost cost = cluster().second_order.value_or(doc::SecondOrderCost{});
  if (!inverses.empty()) cost.inverses.clear();
  for (const auto& [dimension, seconds] : inverses)
    cost.inverses.push_back({dimension, mean(seconds)});
  options_.second_order->cost = cost;
  if (options_.cluster) options_.cluster->second_order = std::move(cost);
  workload_.forward_s = 0;
  for (const doc::Layer& layer : workload_.layers)
    *workload_.forward_s += layer.forward_s.value_or(0);
}

}  // namespace linerate::torch_adapter
