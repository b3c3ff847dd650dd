#include "linerate/cli/workload_argument.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <utility>

#include "linerate/cli/option_value.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/models/workload.hpp"

namespace linerate::cli {
namespace {

constexpr int kMostCount = 100'000'000;  // of classes, of samples in a batch: beyond is a typo

bool covers_step(const WorkloadArgument& a) { return a.covers.value_or("step") == "step"; }

doc::Workload from_zoo(const std::string& name, const WorkloadArgument& a,
                       std::optional<double> step_s) {
  if (!step_s)
    throw UsageError(fmt::format(
        "-w {}: a model has shapes but no times; give --step-time of one device, such as 120ms",
        a.reference));
  models::WorkloadOptions options;
  if (!a.input.empty()) options.model.input = models::parse_shape(a.input);
  if (a.classes > 0) options.model.classes = a.classes;
  options.batch = a.batch;
  options.step_s = step_s;
  doc::Workload w = models::workload(name, options);
  if (covers_step(a)) w.step_s = step_s;
  return w;
}

void override_step(const WorkloadArgument& a, double step_s, doc::Workload& w) {
  if (step_s < w.backward_s)
    throw UsageError(fmt::format("--step-time: {} is less than the Workload's backward pass of {}",
                                 format_time(step_s), format_time(w.backward_s)));
  if (covers_step(a)) {
    w.step_s = step_s;
  } else {
    w.forward_s = step_s - w.backward_s;
    w.step_s.reset();
  }
}

}  // namespace

void add_workload_options(CLI::App& verb, WorkloadArgument& a) {
  verb.add_option("-w,--workload", a.reference, "A Workload file, or zoo:NAME.");
  verb.add_option("--input", a.input, "zoo: shape of one sample, such as 3x32x32.");
  verb.add_option("--classes", a.classes, "zoo: classes of the head.")
      ->check(CLI::Range(1, kMostCount));
  verb.add_option("--batch", a.batch, "zoo: samples per rank.")->check(CLI::Range(1, kMostCount));
  verb.add_option("--step-time", a.step_time, "One-device step as its source measured it: 128ms.");
  verb.add_option("--scale", a.scale,
                  "Gradients and computation so many times as large: 0.1; absent: 1.");
  verb.add_option("--step-time-covers", a.covers, "What --step-time covers; absent: step.")
      ->check(CLI::IsMember({"step", "forward_backward"}));
}

namespace {

doc::Workload read_at_full_scale(const WorkloadArgument& a) {
  if (a.reference.empty()) throw UsageError("-w: give a Workload file or zoo:NAME");
  if (a.step_time.empty() && a.covers)
    throw UsageError("--step-time-covers says what --step-time covers: give --step-time, too");
  std::optional<double> step_s;
  if (!a.step_time.empty()) {
    step_s = parse_option("--step-time", a.step_time, parse_time).value;
    if (!(*step_s > 0)) throw UsageError("--step-time: expected more than 0 s");
  }
  if (const auto name = models::zoo_name(a.reference)) return from_zoo(*name, a, step_s);
  if (!a.input.empty() || a.classes > 0 || a.batch > 0)
    throw UsageError("--input, --classes and --batch go with -w zoo:NAME; a file has its own");
  doc::Workload w = doc::load_workload(a.reference);
  if (step_s) override_step(a, *step_s, w);
  return w;
}

}  // namespace

doc::Workload read_workload(const WorkloadArgument& a) {
  doc::Workload w = read_at_full_scale(a);
  if (a.scale.empty()) return w;
  return parse_option("--scale", a.scale, [&w](const std::string& text) {
    return doc::scaled(std::move(w), parse_number(text));
  });
}

}  // namespace linerate::cli
