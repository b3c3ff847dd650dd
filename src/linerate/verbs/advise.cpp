#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "linerate/advise/advise.hpp"
#include "linerate/advise/search_space.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/verbs/option_checks.hpp"

namespace linerate::verbs {
namespace {

// From words to values. What was not given stays absent, and the library decides.
advise::AdviseOptions library_options(const AdviseOptions& a) {
  advise::AdviseOptions o;
  o.ranks = a.ranks;
  if (!a.bandwidth.empty()) o.bandwidth = parse_option("--bandwidth", a.bandwidth, parse_bandwidth);
  if (!a.latency.empty()) o.latency = parse_option("--latency", a.latency, parse_time);
  if (!a.current.empty()) o.current = parse_option("--current", a.current, doc::parse_strategy);
  if (!a.framework.empty())
    o.framework = parse_option("--framework", a.framework, advise::parse_framework);
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

}  // namespace

void add_options(CLI::App& verb, AdviseOptions& a) {
  add_workload_options(verb, a.workload);
  add_network_options(verb, a.network);
  verb.add_option("--ranks", a.ranks, "Number of ranks of the job. Default: the Cluster's.")
      ->check(count(1, kMostRanks));
  verb.add_option(
          "--bandwidth", a.bandwidth,
          "Line rate of the network per direction, such as 10Gbit/s. Default: the Cluster's.")
      ->type_name(kRate);
  verb.add_option("--latency", a.latency, "Latency of the network per message step, such as 20us.")
      ->type_name(kTime);
  verb.add_option("--current", a.current,
                  "The strategy in use. Default: the Workload's, or ddp if it has none.");
  verb.add_option("--codec", a.codecs,
                  "A codec to consider, such as codec(ratio=8, encode=10GB/s, exchange=sum). May "
                  "be repeated.")
      ->allow_extra_args(false);
  verb.add_option("--strategy", a.strategies,
                  "Strategies to consider next to those that are searched.")
      ->allow_extra_args(false);
  verb.add_option("--framework", a.framework,
                  "pytorch: consider only what DDP, its hooks and its options can do, and name it "
                  "in their words.");
  verb.add_option("--memory", a.memory,
                  "Memory that the exchange may use on each rank, such as 8GiB.")
      ->type_name(kSize);
  verb.add_option("--steps-to-target", a.steps,
                  "Steps to the target relative to an uncompressed run: a file of linerate "
                  "evaluate, or \"codec(ratio=8)=1.1[1.05,1.2]\".")
      ->allow_extra_args(false);
  add_with_default(verb, "--least-gain", a.least_gain_percent,
                   "Smallest gain in percent that is worth a change.", between(0.0, 99.0));
}

// The strategy in use is what the options say, else what the Workload says, else ddp. Only the
// first two count as known: a prediction of an assumed strategy that misses the measured step says
// nothing against predictions.
doc::Advice advise(const AdviseOptions& a, const Caller& caller) {
  advise::AdviseOptions options = library_options(a);
  const auto network = read_network(a.network, !a.bandwidth.empty(), caller);
  const doc::Workload workload = read_workload(a.workload, caller);
  if (a.current.empty() && !workload.current.empty())
    options.current = doc::parse_strategy(workload.current);
  options.current_is_known = !a.current.empty() || !workload.current.empty();
  const auto cluster = at_device_speed(network, a.workload);
  options.on_progress = [&caller](std::size_t done, std::size_t total) {
    caller.show(fmt::format("{} of at most {} simulations", done, total));
  };
  return advise::advise(workload, *cluster, options);
}

}  // namespace linerate::verbs
