// The Workload is changed in the order of the options' meaning: first its step as its source
// measured it, then its scale, then the device. An example: "--step-time 100ms --scale 0.5
// --device-speed 2x", and a fifth of the step is the host's. Scaled it is 50 ms, 10 ms of them the
// host's. On the faster device it is 40 / 2 + 10 = 30 ms.
#include "linerate/verbs/workload_argument.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string_view>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/option_value.hpp"

namespace linerate::verbs {
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
  verb.add_option("--step-time", a.step_time,
                  "Step of one device, such as 128ms. A Workload's own step is scaled to it, with "
                  "its host gaps.")
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
  if (a.step_time.empty() && a.covers)
    throw UsageError("--step-time-covers says what --step-time covers; give --step-time too");
  models::WorkloadSource source = a.source;
  source.held = caller.documents.find<doc::Workload>(a.source.reference);
  if (!a.step_time.empty()) source.step_time = parse_option("--step-time", a.step_time, parse_time);
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
