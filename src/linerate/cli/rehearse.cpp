// linerate rehearse -w workload.json -c cluster.json --strategy dear: a Plan on the real network
// with computation that waits, next to the simulator's prediction.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/plan/codec.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/question_argument.hpp"
#include "linerate/verbs/rehearse.hpp"

namespace linerate::cli {
namespace {

// A Plan, or what one is made from.
struct RehearseOptions {
  verbs::WorkloadArgument workload;
  verbs::NetworkArgument network;
  std::string plan, output, predicted, real;
  std::vector<doc::Strategy> strategies;
  std::optional<Seconds> budget;
  std::optional<BytesPerSecond> link;
  std::optional<int> ranks;
  exec::RehearsalOptions rehearsal;
  bool json = false;
};

// A Plan from a file says workload, strategy, ranks and times. An option that would say them again
// might contradict it.
void check_options(const RehearseOptions& o) {
  // Refused before ranks come together: rehearsing one strategy for minutes and then refusing the
  // next helps nobody.
  for (const doc::Strategy& s : o.strategies) static_cast<void>(plan::traits_of(s));
  const std::size_t strategies = o.strategies.size();
  const bool given = !o.plan.empty();
  if (given &&
      (strategies > 0 || !o.workload.source.reference.empty() || !o.workload.scale.empty() ||
       o.workload.source.step_time || !o.workload.device_speed.empty()))
    throw UsageError(
        "--plan already holds the workload, strategy and times; leave out -w, --strategy, --scale, "
        "--step-time and --device-speed, or let linerate plan -o write another Plan");
  if (!given && strategies == 0)
    throw UsageError(
        "-w: expected a Workload and --strategy, or --plan, found neither; give one of them");
  if (strategies > 1 && (!o.output.empty() || !o.predicted.empty()))
    throw UsageError("-o and --predicted hold one Timeline; give one strategy");
  if (o.budget && (given || o.network.is_given()))
    throw UsageError(
        "--budget limits the time to probe the network; leave out -c, --network and --plan");
  if (!o.predicted.empty() && given && !o.network.is_given())
    throw UsageError(
        "--predicted: expected prices for the plan's collectives, found none; give -c cluster.json "
        "or --network");
  std::vector<std::string> inputs = {o.workload.source.reference, o.network.cluster, o.plan};
  verbs::refuse_input_as_output("--output", o.output, inputs);
  verbs::refuse_input_as_output("--predicted", o.predicted, inputs);
}

// A Cluster of these ranks and this moment. It has no codecs of its own.
doc::Cluster probe_network(comm::Communicator& communicator, const RehearseOptions& o) {
  calibrate::CollectiveProbeOptions probing;
  if (o.budget) probing.budget = to_duration(*o.budget);
  ProgressLine line(communicator.rank() != 0);
  probing.progress = [&line](double done) {
    line.show(fmt::format("rehearse: probing the network {:3.0f} %", 100 * done));
  };
  return verbs::probe_network(communicator, probing);
}

// With --real codecs run; without, they wait as computation does.
verbs::Rehearsed rehearse_one(comm::Communicator& communicator, const RehearseOptions& o,
                              const verbs::PricedPlan& priced) {
  exec::RehearsalOptions options = o.rehearsal;
  options.real_codecs = !o.real.empty();
  ProgressLine line(communicator.rank() != 0);
  options.progress = [&](double done) {
    line.show(fmt::format("rehearse: {} {:3.0f} %", priced.plan->strategy, 100 * done));
  };
  return verbs::rehearse(communicator, priced, options);
}

// The error is that of the prediction against the rehearsal. What a rehearsal cannot show, the
// contention of real computation, is said in the last line.
void print_table(const std::vector<verbs::Rehearsed>& all, const RehearseOptions& o) {
  const auto time = [](const std::optional<double>& s) { return s ? format_time(*s) : "-"; };
  std::vector<std::vector<std::string>> rows;
  for (const verbs::Rehearsed& r : all) {
    const std::optional<double> error = r.step.error();
    rows.push_back({r.plan->strategy, time(r.step.predicted_s), time(r.step.measured_s),
                    error ? compare::signed_percent(*error) : "-", time(r.exposed.predicted_s),
                    time(r.exposed.measured_s)});
  }
  fmt::print("{}", text_table({"strategy", ">predicted", ">rehearsed", ">error",
                               ">exposed: predicted", ">rehearsed"},
                              rows));
  const doc::Plan& plan = *all.front().plan;
  fmt::print(
      "{}: {} ranks over {}, {} steps; computation waits {} a step, and nothing slows it{}\n",
      plan.workload, plan.ranks, all.front().measured.transport, o.rehearsal.steps,
      format_time(exec::computation_s(plan)),
      !o.real.empty() ? "; encoding and decoding are real" : "");
}

// Numbers that are not known are null.
void print_json(const std::vector<verbs::Rehearsed>& all) {
  doc::Json json = doc::Json::array();
  for (const verbs::Rehearsed& r : all)
    json.push_back({{"strategy", r.plan->strategy},
                    {"workload", r.plan->workload},
                    {"ranks", r.plan->ranks},
                    {"transport", r.measured.transport},
                    {"computation_s", exec::computation_s(*r.plan)},
                    {"predicted_step_s", doc::json_of(r.step.predicted_s)},
                    {"rehearsed_step_s", doc::json_of(r.step.measured_s)},
                    {"relative_error", doc::json_of(r.step.error())},
                    {"noise", doc::json_of(r.step.noise)},
                    {"predicted_exposed_s", doc::json_of(r.exposed.predicted_s)},
                    {"rehearsed_exposed_s", doc::json_of(r.exposed.measured_s)}});
  fmt::print("{}\n", json.dump(2));
}

// Order: options, files, ranks. Each is refused at the least cost. All ranks plan and run; rank 0
// writes and prints.
void run_rehearse(const RehearseOptions& o) {
  check_options(o);
  comm::set_link(o.link);
  std::optional<doc::Plan> plan;
  if (!o.plan.empty()) plan = doc::load_plan(o.plan);
  std::optional<doc::Cluster> cluster;
  if (o.network.is_given())
    cluster = *verbs::at_device_speed(verbs::read_network(o.network, false, {}), o.workload);
  const doc::Workload workload = plan ? doc::Workload{} : verbs::read_workload(o.workload);

  comm::WorldOptions world;
  world.expected_size = plan ? plan->ranks : o.ranks;
  const auto communicator = comm::make_world(world);
  if (communicator->size() < 2)
    throw UsageError(
        "rehearse: one rank has no other to exchange with; start it as tools/mpirun -n 2 linerate "
        "rehearse ...");
  std::vector<verbs::Rehearsed> all;
  if (plan) {
    all.push_back(rehearse_one(*communicator, o, verbs::with_prices(std::move(*plan), cluster)));
  } else {
    if (!cluster) cluster = probe_network(*communicator, o);
    // Emulated coding waits as long as whatif says; real coding takes as long as it takes here.
    if (o.real.empty()) cluster = plan::with_known_codecs(*cluster);
    for (const doc::Strategy& strategy : o.strategies)
      all.push_back(rehearse_one(
          *communicator, o, verbs::plan_strategy(*communicator, workload, *cluster, strategy)));
  }
  if (communicator->rank() != 0) return;
  std::set<std::string> said;  // each note once, however many strategies have it
  for (const verbs::Rehearsed& r : all)
    for (const std::string& note : r.notes)
      if (said.insert(note).second) print_notes({note});
  if (!o.output.empty()) doc::save(all.front().measured, o.output);
  if (!o.predicted.empty()) doc::save(*all.front().predicted, o.predicted);
  o.json ? print_json(all) : print_table(all, o);
}

}  // namespace

void setup_rehearse(CLI::App& app) {
  const auto o = std::make_shared<RehearseOptions>();
  CLI::App* verb = app.add_subcommand(
      "rehearse", "Run a Plan under mpirun: communication is real, computation waits.");
  verbs::add_workload_options(*verb, o->workload);
  verbs::add_network_options(*verb, o->network);
  verb->get_option("--cluster")
      ->description("The Cluster to plan and predict with. Default: the network is probed first.");
  verbs::add_repeated(*verb, "--strategy", o->strategies, doc::parse_strategies,
                      "Strategies to run one after the other, such as ddp or dear. May be "
                      "repeated, or given with commas.");
  verb->add_option("--plan", o->plan, "A Plan that linerate plan -o wrote. Replaces -w.");
  verb->add_option("--steps", o->rehearsal.steps, "Recorded steps; absent: 20.")
      ->check(verbs::count(1, 1'000'000));
  verb->add_option(
          "--warm-up", o->rehearsal.warm_up,
          "Steps before the recorded ones, next to the strategy's own first step. Default: 3.")
      ->check(verbs::count(1, 1'000'000));
  verb->add_option("--real", o->real,
                   "codec: run casts and compressors. Default: they wait as long as they cost.")
      ->check(verbs::one_of({"codec"}));
  verbs::add_parsed(*verb, "--budget", o->budget, parse_time,
                    "Time that probing may take. Default: 6s.");
  verbs::add_link_option(*verb, o->link);
  verb->add_option("--ranks", o->ranks, "Ranks expected.")->check(verbs::count(2, kMostRanks));
  verb->add_option("-o,--output", o->output, "File to save the rehearsed Timeline to.");
  verb->add_option("--predicted", o->predicted, "File to save the predicted Timeline to.");
  verb->add_flag("--json", o->json, "Print the results as JSON.");
  verb->callback([o] { run_rehearse(*o); });
}

}  // namespace linerate::cli
