// Questions to the simulator: whatif, the time of one collective, and plan.
#include <CLI/CLI.hpp>

#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::verbs {

void add_options(CLI::App& verb, WhatifOptions& o) {
  add_question_options(verb, o.question);
  verb.add_option(
          "--gamma", o.gamma,
          "For agarwal2021: how much slower backward runs during communication. Default: 1.07.")
      ->check(between(1.0, 10.0));
  verb.add_option("--epsilon", o.epsilon,
                  "For agarwal2021: how much longer than backward alone a step may take, as a "
                  "share. Default: 0.05.")
      ->check(between(1e-6, 10.0));
}

// Options that only one preset reads are refused for others.
whatif::Question question_of(const WhatifOptions& o) {
  whatif::Question q = question_of(o.question);
  if (q.preset != whatif::Preset::agarwal2021 && (o.gamma || o.epsilon))
    throw UsageError(
        "--gamma and --epsilon belong to --preset agarwal2021; add it, or leave them out");
  if (o.gamma) q.agarwal.gamma = *o.gamma;
  if (o.epsilon) q.agarwal.epsilon = *o.epsilon;
  return q;
}

// The Question first: a mistake in an option is found before a file is read.
Asked whatif(const WhatifOptions& o, const Caller& caller) {
  Asked asked;
  asked.question = question_of(o);
  asked.workload = std::make_shared<doc::Workload>(read_workload(o.question.workload, caller));
  asked.cluster = read_cluster(o.question, asked.question, caller);
  asked.answer = whatif::ask(*asked.workload, *asked.cluster, asked.question);
  return asked;
}

// One prediction's combination is planned anew: an answer of hundreds of combinations would
// otherwise keep as many Plans.
whatif::Planned plan_of(const Asked& asked, std::size_t prediction) {
  if (!asked.workload)
    throw UsageError(
        "predictions that were read from a file have no Plans and no Timelines; run whatif again");
  return whatif::plan_one(
      *asked.workload, *asked.cluster,
      whatif::only(*asked.workload, *asked.cluster, asked.question, prediction));
}

doc::Timeline timeline_of(const Asked& asked, std::size_t prediction) {
  return whatif::timeline_of(plan_of(asked, prediction), *asked.workload);
}

// Timelines of all combinations would make a page of many megabytes; the first shows what a step
// looks like.
report::Inputs page_of(const Asked& asked) {
  report::Inputs inputs;
  inputs.title = "What if";
  inputs.predictions = {{"", asked.answer}};
  if (!asked.workload) return inputs;
  if (auto first = whatif::first_timeline(*asked.workload, *asked.cluster, asked.question))
    inputs.timelines.push_back({first->strategy, first->strategy, std::move(*first)});
  return inputs;
}

void add_options(CLI::App& verb, CollectiveOptions& o) {
  add_network_options(verb, o.network);
  add_parsed(verb, "--ranks", o.ranks, list_of(parse_ranks<>),
             "Number of ranks that take part. May be several, such as 72,144. Default: the "
             "Cluster's.");
  if (o.collective != Collective::barrier)
    add_parsed(verb, "--size", o.sizes, list_of(parse_size),
               "Size, or several, such as 1MiB,64MiB. For a gather or scatter: of the whole array.")
        ->required()
        ->type_name(kSize);
  add_parsed(verb, "--bandwidth", o.costs.bandwidth, parse_bandwidth,
             "Line rate of the network per direction, such as 100Gbit/s. Default: the Cluster's.")
      ->type_name(kRate);
  add_latency_option(verb, o.costs.latency);
}

// Lists of sizes and rank counts give a time for each pair. A barrier has no size, and one time for
// each rank count.
cost::CollectiveTimes whatif_collective(const CollectiveOptions& o, const Caller& caller) {
  return cost::collective_times(*read_network(o.network, o.costs.bandwidth.has_value(), caller),
                                o.collective, o.sizes, o.ranks, o.costs);
}

// The options of a question, with the words of a single one: a Plan is of one combination.
void add_options(CLI::App& verb, PlanOptions& o) {
  add_question_options(verb, o.question);
  const auto describe = [&verb](const char* option, const char* text) {
    verb.get_option(option)->description(text);
  };
  describe("--preset", "Plan with a paper's model: zhang2020.");
  describe("--strategy", "The strategy, such as ddp or dear+codec(ratio=8).");
  describe("--ranks", "Number of ranks of the job. Default: the Cluster's.");
  describe("--bandwidth",
           "Line rate of the network per direction, such as 10Gbit/s. Default: the Cluster's.");
  describe("--compression-ratio",
           "Makes payloads this many times smaller, with encoding that takes no time: 8.");
  verb.add_flag(
      "--training", o.training,
      "Plan what linerate train runs: also scaling, flags of used parameters, and buffers.");
}

// The order is that of whatif: options, Workload, Cluster.
whatif::Planned plan(const PlanOptions& o, const Caller& caller) {
  const whatif::Question question = question_of(o.question);
  const doc::Workload workload = read_workload(o.question.workload, caller);
  const auto cluster = read_cluster(o.question, question, caller);
  return whatif::plan_one(workload, *cluster, question, o.training);
}

}  // namespace linerate::verbs
