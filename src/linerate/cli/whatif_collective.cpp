// linerate whatif all-reduce -c cluster.json --ranks 4 --size 1MiB,64MiB: the time of one
// collective, with its interval.
#include "linerate/cli/whatif_collective.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/cli/option_value.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/report/collective_text.hpp"

namespace linerate::cli {
namespace {

struct WhatifCollectiveOptions {
  Collective collective = Collective::all_reduce;
  std::string cluster, sizes, bandwidth, latency;
  std::optional<int> ranks;
  bool json = false;
};

void run_whatif_collective(const WhatifCollectiveOptions& o) {
  cost::CostOptions options;
  if (!o.bandwidth.empty())
    options.bandwidth = parse_option("--bandwidth", o.bandwidth, parse_bandwidth);
  if (!o.latency.empty()) options.latency = parse_option("--latency", o.latency, parse_time);
  const cost::CollectiveTimes times =
      cost::collective_times(doc::load_cluster(o.cluster), o.collective,
                             parse_option_list("--size", o.sizes, parse_size), o.ranks, options);
  fmt::print("{}", o.json ? report::to_json(times) : report::to_text(times));
}

// `whatif --ranks 4 all-reduce`: the option would belong to the other question and be lost.
void refuse_options_before(const CLI::App& verb, const CLI::App& whatif) {
  for (const CLI::Option* option : whatif.get_options())
    if (option->count() > 0)
      throw UsageError(fmt::format("{0}: write options after {1}: linerate whatif {1} {0} ...",
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
    verb->add_option("--bandwidth", o->bandwidth,
                     "Of the network, per direction: 100Gbit/s; absent: the Cluster's.");
    verb->add_option("--latency", o->latency, "Of the network, per message step: 20us.");
    verb->add_flag("--json", o->json, "Print the predictions as JSON.");
    verb->callback([o, verb, &whatif] {
      refuse_options_before(*verb, whatif);
      run_whatif_collective(*o);
    });
  }
}

}  // namespace linerate::cli
