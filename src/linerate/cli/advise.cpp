// linerate advise -w workload.json -c cluster.json --ranks 16: what to do about the network.
#include "linerate/advise/advise.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/advise/search_space.hpp"
#include "linerate/cli/command_line.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/progress_line.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/cli/workload_argument.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/report/advice_text.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/version.hpp"

namespace linerate::cli {
namespace {

struct AdviseArguments {
  WorkloadArgument workload;
  std::string cluster, bandwidth, latency, memory, html;
  std::string current;
  std::vector<std::string> codecs, strategies, steps;
  int ranks = 0;
  double least_gain_percent = 2;
  bool all = false, json = false;
};

advise::AdviseOptions options_of(const AdviseArguments& a) {
  advise::AdviseOptions o;
  o.ranks = a.ranks;
  if (!a.bandwidth.empty()) o.bandwidth = parse_option("--bandwidth", a.bandwidth, parse_bandwidth);
  if (!a.latency.empty()) o.latency = parse_option("--latency", a.latency, parse_time);
  if (!a.current.empty()) o.current = parse_option("--current", a.current, doc::parse_strategy);
  for (const std::string& text : a.codecs)
    o.codecs.push_back(parse_option("--codec", text, advise::parse_codec));
  for (const std::string& text : a.strategies)
    for (doc::Strategy& s : doc::parse_strategies(text)) o.more.push_back(std::move(s));
  if (!a.memory.empty())
    o.memory_bytes = static_cast<double>(parse_option("--memory", a.memory, parse_size).value);
  for (const std::string& text : a.steps)
    for (advise::StepsToTarget& entry : advise::read_steps_to_target(text))
      o.steps.push_back(std::move(entry));
  o.least_gain = a.least_gain_percent / 100;
  return o;
}

void save_page(const AdviseArguments& a, const doc::Advice& advice, const std::string& command) {
  report::Inputs inputs;
  inputs.files = {a.workload.source.reference};
  if (!a.cluster.empty()) inputs.files.push_back(a.cluster);
  inputs.advice = {advice};
  report::save_page(inputs, command, std::string(kVersion), a.html);
}

void run_advise(const AdviseArguments& a, const std::string& command) {
  refuse_input_as_output("--html", a.html, {a.workload.source.reference, a.cluster});
  advise::AdviseOptions options = options_of(a);
  if (a.cluster.empty() && a.bandwidth.empty())
    throw UsageError("what network? give -c cluster.json or --bandwidth");
  const doc::Workload workload = read_workload(a.workload);
  if (a.current.empty() && !workload.current.empty())
    options.current = doc::parse_strategy(workload.current);
  const doc::Cluster cluster = a.cluster.empty() ? doc::Cluster{} : doc::load_cluster(a.cluster);
  ProgressLine progress;
  options.on_progress = [&](std::size_t done, std::size_t total) {
    progress.show(fmt::format("{} of at most {} simulations", done, total));
  };
  const doc::Advice advice = advise::advise(workload, cluster, options);
  progress.clear();
  if (!a.html.empty()) save_page(a, advice, command);
  fmt::print("{}", a.json ? doc::to_json(advice) : report::to_text(advice, a.all));
}

}  // namespace

void setup_advise(CLI::App& app) {
  const auto a = std::make_shared<AdviseArguments>();
  CLI::App* verb =
      app.add_subcommand("advise", "Rank strategies for a job and a network, or say do nothing.");
  add_workload_options(*verb, a->workload);
  verb->add_option("-c,--cluster", a->cluster, "A Cluster: calibrated, or written by hand.");
  verb->add_option("--ranks", a->ranks, "Ranks of the job; absent: the Cluster's.")
      ->check(CLI::Range(1, kMostRanks));
  verb->add_option("--bandwidth", a->bandwidth,
                   "Line rate of the network, per direction: 10Gbit/s; absent: the Cluster's.");
  verb->add_option("--latency", a->latency, "Of the network, per message step: 20us.");
  verb->add_option("--current", a->current,
                   "The strategy in use; absent: the Workload's, else ddp.");
  verb->add_option("--codec", a->codecs,
                   "A codec to consider, repeated: codec(ratio=8, encode=10GB/s, exchange=sum).")
      ->allow_extra_args(false);
  verb->add_option("--strategy", a->strategies, "Strategies to consider besides those searched.")
      ->allow_extra_args(false);
  verb->add_option("--memory", a->memory, "What the exchange may use on each rank: 8GiB.");
  verb->add_option(
          "--steps-to-target", a->steps,
          "Steps against an uncompressed run: results.json, or \"codec(ratio=8)=1.1[1.05,1.2]\".")
      ->allow_extra_args(false);
  verb->add_option("--least-gain", a->least_gain_percent,
                   "Percent below which no change is worth it.")
      ->check(CLI::Range(0.0, 99.0))
      ->capture_default_str();
  verb->add_option("--html", a->html, "Write the advice as a page, too.");
  verb->add_flag("--all", a->all, "List every setting tried, not the best of each exchange.");
  verb->add_flag("--json", a->json, "Print the advice as JSON.");
  verb->callback([a, verb] { run_advise(*a, command_line(*verb)); });
}

}  // namespace linerate::cli
