// linerate whatif all-reduce -c cluster.json --ranks 4 --size 1MiB,64MiB: the time of one
// collective, with its interval.
#include "linerate/cli/whatif_collective.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/time_range.hpp"
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

// A barrier carries no bytes.
std::vector<Bytes> sizes_of(const WhatifCollectiveOptions& o) {
  if (o.collective == Collective::barrier) return {Bytes{0}};
  std::vector<Bytes> sizes;
  for (const std::string& text : split_outside_parentheses(o.sizes, ',')) {
    try {
      sizes.push_back(parse_size(text));
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("--size: {}", e.what()));
    }
  }
  return sizes;
}

// Closed forms have no measured error: their interval is unknown, not of width 0.
doc::Json json_of(const Prediction& p, bool fitted) {
  doc::Json json = {{"size_bytes", p.size.value},
                    {"time_s", p.estimate.seconds},
                    {"interval_s", nullptr},
                    {"extrapolated", p.estimate.extrapolated}};
  if (fitted) json["interval_s"] = {p.estimate.low, p.estimate.high};
  return json;
}

void print_json(const std::vector<Prediction>& predictions, bool fitted) {
  doc::Json list = doc::Json::array();
  for (const Prediction& p : predictions) list.push_back(json_of(p, fitted));
  fmt::print("{}\n", doc::Json{{"predictions", list}}.dump());
}

void print_row(const Prediction& p, Collective collective, int ranks, bool fitted) {
  const double rate = static_cast<double>(p.size.value) / p.estimate.seconds;
  const bool moves = p.size.value > 0 && p.estimate.seconds > 0;
  fmt::print("{:>12}{:>12}{:>26}{:>12}{:>12}{}\n", format_size(static_cast<double>(p.size.value)),
             format_time(p.estimate.seconds),
             fitted ? time_range(p.estimate.low, p.estimate.high) : "n/a",
             moves ? format_rate(rate) : "-",
             moves ? format_rate(rate * bus_factor(collective, ranks)) : "-",
             p.estimate.extrapolated ? "  extrapolated" : "");
}

void print_table(const std::vector<Prediction>& predictions, Collective collective, int ranks,
                 bool fitted) {
  fmt::print("{} on {} rank{}\n{:>12}{:>12}{:>26}{:>12}{:>12}\n", name_of(collective), ranks,
             ranks == 1 ? "" : "s", "size", "time", "90 % interval", "algbw", "busbw");
  bool any_extrapolated = false;
  for (const Prediction& p : predictions) {
    print_row(p, collective, ranks, fitted);
    any_extrapolated |= p.estimate.extrapolated;
  }
  if (any_extrapolated)
    fmt::print(
        "extrapolated: outside the measured sizes or rank counts, by the collective's law.\n");
  if (!fitted && ranks > 1)
    fmt::print(
        "n/a: a closed form over links that were given, not measured; its error is unknown. "
        "linerate calibrate measures it.\n");
}

void run_whatif_collective(const WhatifCollectiveOptions& o) {
  const std::vector<Bytes> sizes = sizes_of(o);
  const doc::Cluster cluster = doc::load_cluster(o.cluster);
  const int ranks = o.ranks.value_or(cluster.ranks);
  if (ranks < 1) throw UsageError("--ranks: the Cluster does not say how many; give --ranks N");
  const cost::CostModel model(cluster);
  std::vector<Prediction> predictions;
  for (const Bytes size : sizes)
    predictions.push_back({size, model.collective(o.collective, size.value, ranks)});
  const bool fitted = model.fitted(o.collective, ranks);
  if (o.json)
    print_json(predictions, fitted);
  else
    print_table(predictions, o.collective, ranks, fitted);
}

// `whatif --ranks 4 all-reduce`: the option would belong to the other question and be lost.
void refuse_options_before(const CLI::App& verb, const CLI::App& whatif) {
  for (const CLI::Option* option : whatif.get_options())
    if (option->count() > 0)
      throw UsageError(fmt::format("{0}: write options behind {1}: linerate whatif {1} {0} ...",
                                   option->get_name(), verb.get_name()));
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
        ->check(CLI::Range(1, kMostRanks));
    if (o->collective != Collective::barrier)
      verb->add_option(
              "--size", o->sizes,
              "One or several, such as 1MiB,64MiB; the total array of a gather or scatter.")
          ->required();
    verb->add_flag("--json", o->json, "Print the predictions as JSON.");
    verb->callback([o, verb, &whatif] {
      refuse_options_before(*verb, whatif);
      run_whatif_collective(*o);
    });
  }
}

}  // namespace linerate::cli
