// linerate rehearse -w workload.json -c cluster.json --strategy dear: a Plan on the real network
// with computation that waits, beside what the simulator says of it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/progress_line.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/cli/workload_argument.hpp"
#include "linerate/comm/agreement.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/cost/extrapolation.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/exec/rehearse.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/predicted_timeline.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::cli {
namespace {

struct RehearseOptions {
  WorkloadArgument workload;
  std::string cluster, plan, output, predicted, real, budget;
  std::vector<std::string> strategies;
  std::optional<int> ranks;
  exec::RehearsalOptions rehearsal;
  bool json = false;
};

/// What is rehearsed, and what the simulator needs to say how long it will take.
struct Rehearsed {
  std::shared_ptr<const doc::Plan> plan;
  std::optional<cost::CostModel> model;       // absent: nothing prices it
  doc::Timeline measured;                     // on rank 0
  std::optional<doc::Timeline> predicted;     // on rank 0
  std::optional<compare::Comparison> joined;  // on rank 0
};

std::vector<doc::Strategy> strategies_of(const RehearseOptions& o) {
  std::vector<doc::Strategy> all;
  for (const std::string& text : o.strategies)
    for (doc::Strategy& s : doc::parse_strategies(text)) {
      if (!plan::traits_of(s).runs.rehearse)
        throw UsageError(fmt::format("--strategy {}: it cannot be rehearsed", doc::to_text(s)));
      all.push_back(std::move(s));
    }
  return all;
}

void check_options(const RehearseOptions& o, std::size_t strategies) {
  const bool given = !o.plan.empty();
  if (given &&
      (strategies > 0 || !o.workload.source.reference.empty() || !o.workload.scale.empty()))
    throw UsageError(
        "--plan holds workload, strategy and scale already; leave out -w, --strategy and --scale, "
        "or let linerate plan -o write another one");
  if (!given && strategies == 0)
    throw UsageError("what is rehearsed? give -w and --strategy, or --plan");
  if (strategies > 1 && (!o.output.empty() || !o.predicted.empty()))
    throw UsageError("-o and --predicted hold one Timeline; give one strategy");
  if (!o.budget.empty() && (given || !o.cluster.empty()))
    throw UsageError("--budget is the time to probe the network: leave out -c and --plan");
  if (!o.predicted.empty() && given && o.cluster.empty())
    throw UsageError("--predicted: nothing prices the plan's collectives; give -c cluster.json");
  std::vector<std::string> inputs = {o.workload.source.reference, o.cluster, o.plan};
  refuse_input_as_output("--output", o.output, inputs);
  refuse_input_as_output("--predicted", o.predicted, inputs);
}

/// The costs of collectives alone: what computation and communication do to each other has no part
/// in a rehearsal.
doc::Cluster probed(comm::Communicator& communicator, const RehearseOptions& o) {
  calibrate::CollectiveProbeOptions probing;
  if (!o.budget.empty()) probing.budget = parse_option("--budget", o.budget, parse_time);
  ProgressLine line(communicator.rank() != 0);
  probing.progress = [&line](double done) {
    line.show(fmt::format("rehearse: probing the network {:3.0f} %", 100 * done));
  };
  doc::Cluster cluster =
      calibrate::fit_cluster(calibrate::probe_collectives(communicator, probing).tables, {});
  cluster.name = fmt::format("{} ranks over {}", communicator.size(), communicator.transport());
  return doc::cluster_from_json(
      comm::broadcast_text(communicator, doc::to_json(cluster), "cluster"), "the probed network");
}

/// In a rehearsal computation waits, on every rank as long as the Workload says.
doc::Cluster without_computation(doc::Cluster cluster) {
  cluster.contention.reset();
  cluster.rank_speeds.clear();
  return cluster;
}

void plan_strategy(const doc::Workload& workload, const doc::Cluster& cluster,
                   const doc::Strategy& strategy, int ranks, Rehearsed& to) {
  whatif::Question question;
  question.strategies = {strategy};
  question.ranks = {ranks};
  whatif::Planned planned = whatif::plan_one(workload, cluster, question);
  to.plan = std::make_shared<const doc::Plan>(std::move(planned.plan));
  to.model = std::move(planned.model);
}

void rehearse(comm::Communicator& communicator, const RehearseOptions& o, Rehearsed& r) {
  exec::RehearsalOptions options = o.rehearsal;
  options.real_codecs = !o.real.empty();
  ProgressLine line(communicator.rank() != 0);
  options.progress = [&](double done) {
    line.show(fmt::format("rehearse: {} {:3.0f} %", r.plan->strategy, 100 * done));
  };
  r.measured = exec::rehearse(communicator, r.plan, options);
  if (communicator.rank() != 0 || !r.model) return;
  r.predicted = sim::predicted_timeline(*r.plan, doc::Workload{}, *r.model);
  r.predicted->one_rank_step_s = exec::computation_s(*r.plan);
  r.joined = compare::compare(*r.predicted, r.measured, {.warm_up = 0});
}

/// Of several strategies each note once.
void warn_of_extrapolation(const std::vector<Rehearsed>& all) {
  std::set<std::string> said;
  for (const Rehearsed& r : all)
    if (r.model)
      for (const std::string& note : cost::extrapolation_notes(*r.model, r.plan->ranks))
        if (said.insert(note).second) log::warning(note);
}

std::optional<double> exposed_of(const Rehearsed& r) {
  if (r.joined) return r.joined->exposed.measured_s;
  return compare::compare(r.measured, r.measured, {.warm_up = 0}).exposed.measured_s;
}

double step_of(const Rehearsed& r) {
  if (r.joined) return r.joined->step.measured_s.value();
  return compare::compare(r.measured, r.measured, {.warm_up = 0}).step.measured_s.value();
}

void print_table(const std::vector<Rehearsed>& all, const RehearseOptions& o) {
  std::vector<std::vector<std::string>> rows;
  const auto time = [](const std::optional<double>& s) { return s ? format_time(*s) : "-"; };
  for (const Rehearsed& r : all) {
    const auto error = r.joined ? r.joined->step.error() : std::nullopt;
    rows.push_back({r.plan->strategy, time(r.joined ? r.joined->step.predicted_s : std::nullopt),
                    format_time(step_of(r)), error ? fmt::format("{:+.1f} %", 100 * *error) : "-",
                    time(r.joined ? r.joined->exposed.predicted_s : std::nullopt),
                    time(exposed_of(r))});
  }
  fmt::print("{}", text_table({{"strategy"},
                               {"predicted", true},
                               {"rehearsed", true},
                               {"error", true},
                               {"exposed: predicted", true},
                               {"rehearsed", true}},
                              rows));
  const doc::Plan& plan = *all.front().plan;
  fmt::print(
      "{}: {} ranks over {}, {} steps; computation waits {} a step, and nothing slows it{}\n",
      plan.workload, plan.ranks, all.front().measured.transport, o.rehearsal.steps,
      format_time(exec::computation_s(plan)),
      !o.real.empty() ? "; encoding and decoding are real" : "");
}

void print_json(const std::vector<Rehearsed>& all) {
  doc::Json json = doc::Json::array();
  for (const Rehearsed& r : all) {
    const auto of = [&r](auto value) -> doc::Json {
      return r.joined ? doc::json_of(value(*r.joined)) : doc::Json(nullptr);
    };
    json.push_back(
        {{"strategy", r.plan->strategy},
         {"workload", r.plan->workload},
         {"ranks", r.plan->ranks},
         {"transport", r.measured.transport},
         {"computation_s", exec::computation_s(*r.plan)},
         {"predicted_step_s", of([](const auto& j) { return j.step.predicted_s; })},
         {"rehearsed_step_s", step_of(r)},
         {"relative_error", of([](const auto& j) { return j.step.error(); })},
         {"noise", of([](const auto& j) { return j.step.noise; })},
         {"predicted_exposed_s", of([](const auto& j) { return j.exposed.predicted_s; })},
         {"rehearsed_exposed_s", doc::json_of(exposed_of(r))}});
  }
  fmt::print("{}\n", json.dump(2));
}

void run_rehearse(const RehearseOptions& o) {
  const std::vector<doc::Strategy> strategies = strategies_of(o);
  check_options(o, strategies.size());
  Rehearsed given;
  if (!o.plan.empty()) given.plan = std::make_shared<const doc::Plan>(doc::load_plan(o.plan));
  std::optional<doc::Cluster> cluster;
  if (!o.cluster.empty()) cluster = without_computation(doc::load_cluster(o.cluster));
  const doc::Workload workload = given.plan ? doc::Workload{} : read_workload(o.workload);

  comm::WorldOptions world;
  world.expected_size = given.plan ? given.plan->ranks : o.ranks;
  const auto communicator = comm::make_world(world);
  if (communicator->size() < 2)
    throw UsageError(
        "rehearse: one rank has nobody to exchange with; start it as mpirun -n 2 linerate rehearse "
        "...");
  if (!cluster && !given.plan) cluster = without_computation(probed(*communicator, o));

  std::vector<Rehearsed> all(given.plan ? 1 : strategies.size());
  if (given.plan) {
    if (cluster) given.model.emplace(*cluster);
    all.front() = std::move(given);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].plan)
      comm::require_success(*communicator, "rehearse", [&] {
        plan_strategy(workload, *cluster, strategies[i], communicator->size(), all[i]);
      });
    rehearse(*communicator, o, all[i]);
  }
  if (communicator->rank() != 0) return;
  warn_of_extrapolation(all);
  if (!o.output.empty()) doc::save(all.front().measured, o.output);
  if (!o.predicted.empty()) doc::save(*all.front().predicted, o.predicted);
  o.json ? print_json(all) : print_table(all, o);
}

}  // namespace

void setup_rehearse(CLI::App& app) {
  const auto o = std::make_shared<RehearseOptions>();
  CLI::App* verb = app.add_subcommand(
      "rehearse", "Run a Plan under mpirun: real communication, computation that waits.");
  add_workload_options(*verb, o->workload);
  verb->add_option("-c,--cluster", o->cluster,
                   "The Cluster to plan and predict with; absent: the network is probed first.");
  verb->add_option(
          "--strategy", o->strategies,
          "Strategies, such as ddp or dear, one after the other; repeated, or with commas.")
      ->allow_extra_args(false);
  verb->add_option("--plan", o->plan, "A Plan that linerate plan -o wrote, in place of -w.");
  verb->add_option("--steps", o->rehearsal.steps, "Recorded steps; absent: 20.")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--warm-up", o->rehearsal.warm_up,
                   "Steps in front of them; absent: 3, beside the strategy's own first step.")
      ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--real", o->real,
                   "codec: casts and compressors run; absent: they wait as long as they cost.")
      ->check(CLI::IsMember({"codec"}));
  verb->add_option("--budget", o->budget, "Time that probing may take; absent: 6s.");
  verb->add_option("--ranks", o->ranks, "Ranks expected.")->check(CLI::Range(2, kMostRanks));
  verb->add_option("-o,--output", o->output, "Save the rehearsed Timeline.");
  verb->add_option("--predicted", o->predicted, "Save the predicted Timeline beside it.");
  verb->add_flag("--json", o->json, "Print the results as JSON.");
  verb->callback([o] { run_rehearse(*o); });
}

}  // namespace linerate::cli
