// Lists are taken apart here; what their combinations mean is whatif::ask()'s. An example: "--ranks
// 16,32 --bandwidth 10Gbit/s,100Gbit/s" with two strategies asks for 2 * 2 * 2 = 8 predictions.
#include "linerate/verbs/question_argument.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/option_value.hpp"

namespace linerate::verbs {
namespace {

// Below 1 a payload would grow.
double parse_ratio(const std::string& text) {
  const double ratio = parse_number(text);
  if (!(ratio >= 1)) throw UsageError(fmt::format("expected at least 1, found {}", text));
  return ratio;
}

}  // namespace

void add_question_options(CLI::App& verb, QuestionArgument& a) {
  add_workload_options(verb, a.workload);
  add_network_options(verb, a.network);
  verb.add_option("--preset", a.preset, "Predict with a paper's model: zhang2020 or agarwal2021.")
      ->check(one_of({"zhang2020", "agarwal2021"}));
  verb.add_option(
          "--strategy", a.strategies,
          "Strategies, such as ddp or dear+codec(ratio=8). May be repeated, or given with commas.")
      ->allow_extra_args(false);
  verb.add_option("--ranks", a.ranks, "Rank counts, such as 16,32,64. Default: the Cluster's.");
  verb.add_option("--bandwidth", a.bandwidths,
                  "Line rates of the network per direction, such as 100Gbit/s,10Gbit/s. Default: "
                  "the Cluster's.")
      ->type_name(kRate);
  verb.add_option("--latency", a.latency, "Latency of the network per message step, such as 20us.")
      ->type_name(kTime);
  verb.add_option(
      "--compression-ratio", a.ratios,
      "Makes payloads these many times smaller, with encoding that takes no time: 1,2,5.");
  verb.add_option("--cost-model", a.all_reduce,
                  "All-reduce algorithm on a network that was not measured (linerate list "
                  "cost-models). Default: ring-or-tree.");
  verb.add_option("--coding", a.codecs,
                  "Whose coding costs count if the Cluster has none: hooks (PyTorch's), linerate "
                  "(its own codecs by their launches) or papers. Default: hooks.")
      ->check(one_of({doc::kCodecsOfNames.begin(), doc::kCodecsOfNames.end()}));
}

// Options stay empty where nothing is given, so that the library's defaults hold for the command
// line and Python alike.
whatif::Question question_of(const QuestionArgument& a) {
  whatif::Question q;
  if (a.preset == "zhang2020") q.preset = whatif::Preset::zhang2020;
  if (a.preset == "agarwal2021") q.preset = whatif::Preset::agarwal2021;
  if (q.preset == whatif::Preset::agarwal2021 && a.all_reduce)
    throw UsageError(
        "--cost-model: --preset agarwal2021 has a model of its own, a ring; leave one of them out");
  for (const std::string& text : a.strategies)
    for (doc::Strategy& s : doc::parse_strategies(text)) q.strategies.push_back(std::move(s));
  q.ranks = parse_option_list("--ranks", a.ranks, parse_ranks);
  q.bandwidths = parse_option_list("--bandwidth", a.bandwidths, parse_bandwidth);
  q.compression_ratios = parse_option_list("--compression-ratio", a.ratios, parse_ratio);
  if (!a.latency.empty()) q.latency = parse_option("--latency", a.latency, parse_time);
  if (a.all_reduce) q.all_reduce = *a.all_reduce;
  const auto& whose = doc::kCodecsOfNames;
  if (const auto named = std::find(whose.begin(), whose.end(), a.codecs); named != whose.end())
    q.codecs = static_cast<doc::CodecsOf>(named - whose.begin());
  return q;
}

// --device-speed concerns what the Cluster knows of devices, such as codecs, besides the Workload.
std::shared_ptr<const doc::Cluster> read_cluster(const QuestionArgument& a,
                                                 const whatif::Question& question,
                                                 const Caller& caller) {
  return at_device_speed(read_network(a.network, !question.bandwidths.empty(), caller), a.workload);
}

}  // namespace linerate::verbs
