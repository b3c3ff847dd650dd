// linerate whatif -w workload.json -c cluster.json --ranks ... --bandwidth ... --strategy ...:
// the predicted step of every combination.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/advise/question.hpp"
#include "linerate/cli/breakdown_table.hpp"
#include "linerate/cli/command_line.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/cli/whatif_collective.hpp"
#include "linerate/cli/whatif_pictures.hpp"
#include "linerate/cli/whatif_print.hpp"
#include "linerate/cli/workload_argument.hpp"
#include "linerate/core/collective.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/sim/predicted_timeline.hpp"

namespace linerate::cli {
namespace {

struct WhatifOptions {
  WorkloadArgument workload;
  std::string cluster, preset, latency, timeline, plan, html;
  std::vector<std::string> strategies;
  std::string ranks, bandwidths, ratios;
  std::optional<std::string> all_reduce;
  std::optional<double> gamma, epsilon;
  bool csv = false, json = false, plot = false;
};

int parse_ranks(const std::string& text) {
  const std::int64_t ranks = parse_integer(text);
  if (ranks < 1 || ranks > kMostRanks)
    throw UsageError(fmt::format("expected 1 to {} ranks, found {}", kMostRanks, text));
  return static_cast<int>(ranks);
}

double parse_ratio(const std::string& text) {
  const double ratio = parse_number(text);
  if (!(ratio >= 1)) throw UsageError(fmt::format("expected at least 1, found {}", text));
  return ratio;
}

// What only one preset reads must not be given in vain.
void check_preset_options(const WhatifOptions& o) {
  const bool agarwal = o.preset == "agarwal2021";
  if (!agarwal && (o.gamma || o.epsilon))
    throw UsageError("--gamma and --epsilon belong to --preset agarwal2021");
  if (agarwal && o.all_reduce)
    throw UsageError("--cost-model: --preset agarwal2021 has its own, a ring");
}

advise::Question question_of(const WhatifOptions& o) {
  check_preset_options(o);
  advise::Question q;
  if (o.preset == "zhang2020") q.preset = advise::Preset::zhang2020;
  if (o.preset == "agarwal2021") q.preset = advise::Preset::agarwal2021;
  for (const std::string& text : o.strategies)
    for (doc::Strategy& s : doc::parse_strategies(text)) q.strategies.push_back(std::move(s));
  q.ranks = parse_option_list("--ranks", o.ranks, parse_ranks);
  q.bandwidths = parse_option_list("--bandwidth", o.bandwidths, parse_bandwidth);
  q.compression_ratios = parse_option_list("--compression-ratio", o.ratios, parse_ratio);
  if (!o.latency.empty()) q.latency = parse_option("--latency", o.latency, parse_time);
  if (o.all_reduce) q.all_reduce = *o.all_reduce;
  if (o.gamma) q.gamma = *o.gamma;
  if (o.epsilon) q.epsilon = *o.epsilon;
  return q;
}

void save_documents(const WhatifOptions& o, const doc::Workload& workload,
                    const doc::Cluster& cluster, const advise::Question& question) {
  if (o.timeline.empty() && o.plan.empty()) return;
  const advise::Planned planned = advise::plan_one(workload, cluster, question);
  if (!o.plan.empty()) doc::save(planned.plan, o.plan);
  if (!o.timeline.empty())
    doc::save(sim::predicted_timeline(planned.plan, workload, planned.model), o.timeline);
}

constexpr int kMostRanksDrawn = 4096;  // a Timeline holds the events of every rank

// The page's timeline: of the first combination asked about. None for a closed formula.
std::vector<report::NamedTimeline> timeline_of_first(const doc::Workload& workload,
                                                     const doc::Cluster& cluster,
                                                     advise::Question question) {
  if (question.preset == advise::Preset::agarwal2021) return {};
  const auto keep_first = [](auto& list) {
    if (list.size() > 1) list.resize(1, list.front());
  };
  keep_first(question.strategies), keep_first(question.ranks);
  keep_first(question.bandwidths), keep_first(question.compression_ratios);
  const advise::Planned planned = advise::plan_one(workload, cluster, question);
  if (planned.plan.ranks > kMostRanksDrawn) return {};
  report::NamedTimeline t;
  t.timeline = sim::predicted_timeline(planned.plan, workload, planned.model);
  t.file = planned.plan.strategy;
  t.breakdown = breakdown_table(t.timeline, t.file);
  if (const double line = planned.model.network_bytes_per_s(); line > 0)
    t.file += " at " + format_bit_rate(line);
  t.timeline.notes = {"the first combination asked about"};
  return {std::move(t)};
}

void run_whatif(const WhatifOptions& o, const std::string& command) {
  if (o.csv + o.json + o.plot > 1)
    throw UsageError("--csv, --json and --plot exclude each other; give one of them");
  const std::vector<std::string> inputs = {o.workload.reference, o.cluster};
  keep_inputs("--html", o.html, inputs);
  keep_inputs("--timeline", o.timeline, inputs);
  keep_inputs("--plan", o.plan, inputs);
  const advise::Question question = question_of(o);
  const doc::Workload workload = read_workload(o.workload);
  const doc::Cluster cluster = o.cluster.empty() ? doc::Cluster{} : doc::load_cluster(o.cluster);
  if (o.cluster.empty() && question.bandwidths.empty())
    throw UsageError("what network? give -c cluster.json or --bandwidth");
  const advise::Answer answer = advise::ask(workload, cluster, question);
  save_documents(o, workload, cluster, question);
  if (!o.html.empty())
    write_whatif_page(answer, timeline_of_first(workload, cluster, question), o.html, command,
                      {o.workload.reference, o.cluster});
  if (o.json)
    print_json(answer, question.preset);
  else if (o.csv)
    print_csv(answer, question.preset);
  else
    print_table(answer, question, workload);
  if (o.plot) print_curves(answer);
  if (o.json || o.csv)
    for (const std::string& note : answer.notes) log::warning(note);
}

}  // namespace

void setup_whatif(CLI::App& app) {
  const auto o = std::make_shared<WhatifOptions>();
  CLI::App* verb =
      app.add_subcommand("whatif", "Ask what another strategy, rank count or network would do.");
  add_workload_options(*verb, o->workload);
  verb->add_option("-c,--cluster", o->cluster, "A Cluster: calibrated, or written by hand.");
  verb->add_option("--preset", o->preset, "A paper's model: zhang2020 or agarwal2021.")
      ->check(CLI::IsMember({"zhang2020", "agarwal2021"}));
  verb->add_option("--strategy", o->strategies,
                   "Strategies, such as ddp or dear+codec(ratio=8); repeated, or with commas.")
      ->allow_extra_args(false);
  verb->add_option("--ranks", o->ranks, "Rank counts, such as 16,32,64.");
  verb->add_option("--bandwidth", o->bandwidths,
                   "Of the network, per direction: 100Gbit/s,10Gbit/s; absent: the Cluster's.");
  verb->add_option("--latency", o->latency, "Of the network, per message step: 20us.");
  verb->add_option("--compression-ratio", o->ratios,
                   "Payloads so many times smaller, encoding free: 1,2,5.");
  verb->add_option("--cost-model", o->all_reduce,
                   "All-reduce algorithm where nothing was measured (linerate list cost-models); "
                   "absent: ring.");
  verb->add_option("--gamma", o->gamma,
                   "agarwal2021: slowdown of backward under overlap; absent: 1.07.")
      ->check(CLI::Range(1.0, 10.0));
  verb->add_option("--epsilon", o->epsilon,
                   "agarwal2021: tolerated loss against backward alone; absent: 0.05.")
      ->check(CLI::Range(1e-6, 10.0));
  verb->add_option("--timeline", o->timeline, "Save the predicted Timeline of one combination.");
  verb->add_option("--plan", o->plan, "Save the Plan of one combination.");
  verb->add_option("--html", o->html, "Write a page with charts, too.");
  verb->add_flag("--plot", o->plot, "Draw the scaling factor over bandwidth in the terminal.");
  verb->add_flag("--csv", o->csv, "Print the predictions as CSV.");
  verb->add_flag("--json", o->json, "Print the predictions as JSON.");
  setup_whatif_collectives(*verb);
  verb->callback([o, verb] {
    if (verb->get_subcommands().empty()) run_whatif(*o, command_line(*verb));
  });
}

}  // namespace linerate::cli
