// Lists are taken apart here; what their combinations mean is whatif::ask()'s. An example: "--ranks
// 16,32 --bandwidth 10Gbit/s,100Gbit/s" with two strategies asks for 2 * 2 * 2 = 8 predictions.
#include "linerate/verbs/question_argument.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/doc/step_speed.hpp"

namespace linerate::verbs {

namespace {

whatif::Preset preset_of(const std::string& name) {
  return name == "zhang2020" ? whatif::Preset::zhang2020 : whatif::Preset::agarwal2021;
}

// Below 1 a payload would grow.
double parse_ratio(const std::string& text) {
  const double ratio = parse_number(text);
  if (!(ratio >= 1)) throw UsageError(fmt::format("expected at least 1, found {}", text));
  return ratio;
}

doc::CodecsOf whose_codecs(const std::string& name) {
  return static_cast<doc::CodecsOf>(std::ranges::find(doc::kCodecsOfNames, name) -
                                    doc::kCodecsOfNames.begin());
}

}  // namespace

void add_question_options(CLI::App& verb, QuestionArgument& a) {
  add_workload_options(verb, a.workload);
  add_network_options(verb, a.network);
  whatif::Question& asked = a.asked;
  add_parsed(verb, "--preset", asked.preset, preset_of,
             "Predict with a paper's model: zhang2020 or agarwal2021.")
      ->check(one_of({"zhang2020", "agarwal2021"}));
  add_repeated(
      verb, "--strategy", asked.strategies, doc::parse_strategies,
      "Strategies, such as ddp or dear+codec(ratio=8). May be repeated, or given with commas.");
  add_parsed(verb, "--ranks", asked.ranks, list_of(parse_ranks<>),
             "Rank counts, such as 16,32,64. Default: the Cluster's.");
  add_parsed(verb, "--bandwidth", asked.bandwidths, list_of(parse_bandwidth),
             "Line rates of the network per direction, such as 100Gbit/s,10Gbit/s. Default: the "
             "Cluster's.")
      ->type_name(kRate);
  add_latency_option(verb, asked.latency);
  add_parsed(verb, "--compression-ratio", asked.compression_ratios, list_of(parse_ratio),
             "Makes payloads these many times smaller, with encoding that takes no time: 1,2,5.");
  verb.add_option("--cost-model", a.all_reduce,
                  "All-reduce algorithm on a network that was not measured (linerate list "
                  "cost-models). Default: ring-or-tree.");
  add_parsed(verb, "--coding", asked.codecs, whose_codecs,
             "Whose coding costs count if the Cluster has none: hooks (PyTorch's), linerate (its "
             "own codecs by their launches) or papers. Default: hooks.")
      ->check(one_of({doc::kCodecsOfNames.begin(), doc::kCodecsOfNames.end()}));
}

whatif::Question question_of(const QuestionArgument& a) {
  whatif::Question q = a.asked;
  if (q.preset == whatif::Preset::agarwal2021 && a.all_reduce)
    throw UsageError(
        "--cost-model: --preset agarwal2021 has a model of its own, a ring; leave one of them out");
  if (a.all_reduce) q.all_reduce = *a.all_reduce;
  return q;
}

// --device-speed concerns what the Cluster knows of devices, such as codecs, besides the Workload.
std::shared_ptr<const doc::Cluster> read_cluster(const QuestionArgument& a,
                                                 const whatif::Question& question,
                                                 const Caller& caller) {
  return at_device_speed(read_network(a.network, !question.bandwidths.empty(), caller), a.workload);
}

void add_link_option(CLI::App& verb, std::optional<BytesPerSecond>& link) {
  add_parsed(verb, "--link", link, parse_bandwidth,
             "Try a slower network: each rank sends as over a link of this rate, such as 1Gbit/s.")
      ->type_name(kRate);
}

void add_latency_option(CLI::App& verb, std::optional<Seconds>& latency) {
  add_parsed(verb, "--latency", latency, parse_time,
             "Latency of the network per message step, such as 20us.")
      ->type_name(kTime);
}

void add_network_options(CLI::App& verb, NetworkArgument& a) {
  verb.add_option("-c,--cluster", a.cluster, "A Cluster, calibrated or written by hand.");
  verb.add_option("--network", a.kind,
                  "A network by its kind, if it was not measured, such as 4xpcie3,tcp:10Gbit/s "
                  "(linerate list networks).");
}

// A bandwidth alone is enough: then costs are those of a network of any kind, and intervals reach
// as far.
std::shared_ptr<const doc::Cluster> read_network(const NetworkArgument& a, bool has_bandwidth,
                                                 const Caller& caller) {
  if (!a.cluster.empty() && !a.kind.empty())
    throw UsageError("--cluster and --network name two networks; give one of them");
  if (!a.cluster.empty()) return cluster_of(a.cluster, caller);
  if (!a.kind.empty())
    return std::make_shared<doc::Cluster>(parse_option("--network", a.kind, cost::nominal_cluster));
  if (!has_bandwidth)
    throw UsageError(
        "-c: expected a Cluster, --network or --bandwidth, found none of them; give one");
  doc::Cluster cluster;
  cluster.nominal = cost::any_network();
  return std::make_shared<doc::Cluster>(std::move(cluster));
}

// The Workload is changed in the order of the options' meaning: first its step as its source
// measured it, then its scale, then the device. An example: "--step-time 100ms --scale 0.5
// --device-speed 2x", and a fifth of the step is the host's. Scaled it is 50 ms, 10 ms of them the
// host's. On the faster device it is 40 / 2 + 10 = 30 ms.

namespace {

constexpr int kMostCount = 100'000'000;  // of classes, of samples in a batch: beyond is a typo

/// 2x, or 2. The message says what the number means, as "expected a number" would not.
double parse_speed(const std::string& text) {
  std::string_view number = trim(text);
  if (number.ends_with('x')) number.remove_suffix(1);
  try {
    return parse_number(number);
  } catch (const UsageError&) {
    throw UsageError(
        fmt::format("expected how many times as fast, such as 2x or 0.5x, found \"{}\"", text));
  }
}

/// On a device of the speed asked for.
template <typename Document>
Document at_speed(Document document, const std::string& speed) {
  return parse_option("--device-speed", speed, [&document](const std::string& text) {
    return doc::on_device(std::move(document), parse_speed(text));
  });
}

}  // namespace

void add_workload_options(CLI::App& verb, WorkloadArgument& a) {
  verb.add_option("-w,--workload", a.source.reference,
                  "A Workload file, zoo:NAME, or only a size: params:7B,bf16.");
  verb.add_option("--input", a.source.input, "For zoo: shape of one sample, such as 3x32x32.");
  verb.add_option("--classes", a.source.classes, "For zoo: number of classes of the head.")
      ->check(count(1, kMostCount));
  verb.add_option("--batch", a.source.batch, "For zoo and params: samples per rank.")
      ->check(count(1, kMostCount));
  add_parsed(verb, "--step-time", a.source.step_time, parse_time,
             "Step of one device, such as 128ms. A Workload's own step is scaled to it, with its "
             "host gaps.")
      ->type_name(kTime);
  verb.add_option("--scale", a.scale,
                  "Multiplies gradients and computation, such as 0.1. Default: 1.");
  verb.add_option(
      "--device-speed", a.device_speed,
      "How many times as fast the device is, such as 2x. The host stays as it is. Default: 1x.");
  verb.add_option("--step-time-covers", a.covers, "What --step-time covers. Default: step.")
      ->check(one_of({"step", "forward_backward"}));
}

// A held Workload is copied, as it is changed here.
doc::Workload read_workload(const WorkloadArgument& a, const Caller& caller) {
  if (!a.source.step_time && a.covers)
    throw UsageError("--step-time-covers says what --step-time covers; give --step-time too");
  models::WorkloadSource source = a.source;
  source.held = caller.documents.find<doc::Workload>(a.source.reference);
  source.step_time_covers_step = a.covers.value_or("step") == "step";
  doc::Workload w = models::load_workload(source);
  if (!a.scale.empty())
    w = parse_option("--scale", a.scale, [&w](const std::string& text) {
      return doc::scaled(std::move(w), parse_number(text));
    });
  return a.device_speed.empty() ? w : at_speed(std::move(w), a.device_speed);
}

// Shared as it is unless a speed is given.
std::shared_ptr<const doc::Cluster> at_device_speed(std::shared_ptr<const doc::Cluster> cluster,
                                                    const WorkloadArgument& a) {
  if (a.device_speed.empty()) return cluster;
  return std::make_shared<doc::Cluster>(at_speed(*cluster, a.device_speed));
}

}  // namespace linerate::verbs
