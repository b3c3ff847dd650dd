#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "linerate/advise/advise.hpp"
#include "linerate/advise/search_space.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::verbs {
void add_options(CLI::App& verb, AdviseOptions& a) {
  add_workload_options(verb, a.workload);
  add_network_options(verb, a.network);
  advise::AdviseOptions& search = a.search;
  verb.add_option("--ranks", search.ranks, "Number of ranks of the job. Default: the Cluster's.")
      ->check(count(1, kMostRanks));
  add_parsed(verb, "--bandwidth", search.bandwidth, parse_bandwidth,
             "Line rate of the network per direction, such as 10Gbit/s. Default: the Cluster's.")
      ->type_name(kRate);
  add_latency_option(verb, search.latency);
  add_parsed(verb, "--current", a.current, doc::parse_strategy,
             "The strategy in use. Default: the Workload's, or ddp if it has none.");
  const auto codec_of = [](const std::string& text) {
    return std::vector{parse_option("--codec", text, advise::parse_codec)};
  };
  add_repeated(verb, "--codec", search.codecs, codec_of,
               "A codec to consider, such as codec(ratio=8, encode=10GB/s, exchange=sum). May be "
               "repeated.");
  add_repeated(verb, "--strategy", search.more, doc::parse_strategies,
               "Strategies to consider next to those that are searched.");
  add_parsed(verb, "--framework", search.framework, advise::parse_framework,
             "pytorch: consider only what DDP, its hooks and its options can do, and name it in "
             "their words.");
  const auto bytes_of = [](const std::string& text) {
    return static_cast<double>(parse_size(text).value);
  };
  add_parsed(verb, "--memory", search.memory_bytes, bytes_of,
             "Memory that the exchange may use on each rank, such as 8GiB.")
      ->type_name(kSize);
  add_repeated(verb, "--steps-to-target", search.steps, advise::read_steps_to_target,
               "Steps to the target relative to an uncompressed run: a file of linerate evaluate, "
               "or \"codec(ratio=8)=1.1[1.05,1.2]\".");
  add_with_default(verb, "--least-gain", a.least_gain_percent,
                   "Smallest gain in percent that is worth a change.", between(0.0, 99.0));
}

// The strategy in use is what the options say, else what the Workload says, else ddp. Only the
// first two count as known: a prediction of an assumed strategy that misses the measured step says
// nothing against predictions.
doc::Advice advise(const AdviseOptions& a, const Caller& caller) {
  advise::AdviseOptions options = a.search;
  options.least_gain = a.least_gain_percent / 100;
  const auto network = read_network(a.network, options.bandwidth.has_value(), caller);
  const doc::Workload workload = read_workload(a.workload, caller);
  options.current_is_known = a.current || !workload.current.empty();
  if (a.current)
    options.current = *a.current;
  else if (options.current_is_known)
    options.current = doc::parse_strategy(workload.current);
  const auto cluster = at_device_speed(network, a.workload);
  options.on_progress = [&caller](std::size_t done, std::size_t total) {
    caller.show(fmt::format("{} of at most {} simulations", done, total));
  };
  return advise::advise(workload, *cluster, options);
}

}  // namespace linerate::verbs
