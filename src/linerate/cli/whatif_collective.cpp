// linerate whatif all-reduce -c cluster.json --ranks 4 --size 1MiB,64MiB: the time of one
// collective, with its interval.
#include "linerate/cli/whatif_collective.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/option_checks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::cli {
namespace {

struct WhatifCollectiveOptions {
  Collective collective = Collective::all_reduce;
  std::string cluster, sizes;
  std::optional<int> ranks;
  bool json = false;
};

struct Prediction {
  Bytes size;
  cost::Estimate estimate;
};

std::vector<Prediction> predict(const WhatifCollectiveOptions& o, const doc::Cluster& cluster,
                                int ranks) {
  const cost::CostModel model(cluster);
  std::vector<Prediction> all;
  for (const std::string& text : split_outside_parentheses(o.sizes, ',')) {
    const Bytes size = parse_size(text);
    all.push_back({size, model.collective(o.collective, size.value, ranks)});
  }
  return all;
}

void print_json(const std::vector<Prediction>& predictions) {
  doc::Json list = doc::Json::array();
  for (const Prediction& p : predictions)
    list.push_back({{"size_bytes", p.size.value},
                    {"time_s", p.estimate.seconds},
                    {"interval_s", {p.estimate.low, p.estimate.high}},
                    {"extrapolated", p.estimate.extrapolated}});
  fmt::print("{}\n", doc::Json{{"predictions", list}}.dump());
}

void print_table(const std::vector<Prediction>& predictions, Collective collective, int ranks) {
  fmt::print("{} on {} ranks\n{:>12}{:>12}{:>26}{:>12}{:>12}\n", name_of(collective), ranks, "size",
             "time", "90 % interval", "algbw", "busbw");
  bool any_extrapolated = false;
  for (const Prediction& p : predictions) {
    const double rate = static_cast<double>(p.size.value) / p.estimate.seconds;
    fmt::print("{:>12}{:>12}{:>26}{:>12}{:>12}{}\n", format_size(static_cast<double>(p.size.value)),
               format_time(p.estimate.seconds),
               fmt::format("{} .. {}", format_time(p.estimate.low), format_time(p.estimate.high)),
               format_rate(rate), format_rate(rate * bus_factor(collective, ranks)),
               p.estimate.extrapolated ? "  extrapolated" : "");
    any_extrapolated |= p.estimate.extrapolated;
  }
  if (any_extrapolated)
    fmt::print(
        "extrapolated: outside the measured sizes or rank counts, by the collective's law.\n");
}

void run_whatif_collective(const WhatifCollectiveOptions& o) {
  const doc::Cluster cluster = doc::load_cluster(o.cluster);
  const int ranks = o.ranks.value_or(cluster.ranks);
  if (ranks < 1) throw UsageError("--ranks: the Cluster does not say how many; give --ranks N");
  const std::vector<Prediction> predictions = predict(o, cluster, ranks);
  if (o.json)
    print_json(predictions);
  else
    print_table(predictions, o.collective, ranks);
}

}  // namespace

void setup_whatif_collectives(CLI::App& whatif) {
  for (const std::string_view name : kCollectiveNames) {
    const auto o = std::make_shared<WhatifCollectiveOptions>();
    o->collective = parse_collective(name);
    CLI::App* verb = whatif.add_subcommand(std::string(name), fmt::format("Time of one {}.", name));
    // Every spelling of core/collective.hpp: all_reduce, AllReduce, allreduce.
    std::string plain(name);
    std::erase(plain, '-');
    if (plain != name) verb->alias(plain);
    verb->ignore_case()->ignore_underscore();
    verb->add_option("-c,--cluster", o->cluster, "A Cluster, as calibrate writes it.")->required();
    verb->add_option("--ranks", o->ranks, "Ranks that take part; absent: those of the Cluster.")
        ->check(above_zero());
    verb->add_option("--size", o->sizes,
                     "One or several, such as 1MiB,64MiB; the total array of a gather or scatter.")
        ->required();
    verb->add_flag("--json", o->json, "Print the predictions as JSON.");
    verb->callback([o] { run_whatif_collective(*o); });
  }
}

}  // namespace linerate::cli
