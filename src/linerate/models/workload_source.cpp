#include "linerate/models/workload_source.hpp"

#include <fmt/format.h>

#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/models/workload.hpp"

namespace linerate::models {
namespace {

doc::Workload from_zoo(const std::string& name, const WorkloadSource& source) {
  static_cast<void>(catalogue().at(name));  // refuses a name that no model has
  if (!source.step_time)
    throw UsageError(fmt::format(
        "-w {}: a model has shapes but no times; give --step-time of one device, such as 120ms",
        source.reference));
  WorkloadOptions options;
  if (!source.input.empty()) options.model.input = parse_shape(source.input);
  if (source.classes > 0) options.model.classes = source.classes;
  options.batch = source.batch;
  options.step_s = source.step_time->value;
  doc::Workload w = workload(name, options);
  if (source.step_time_covers_step) w.step_s = options.step_s;
  return w;
}

/// A step that is known is scaled, with all its parts; one that is not is completed.
doc::Workload with_step(doc::Workload w, double step_s, bool covers_step) {
  const bool known = w.step_s || w.forward_s;
  const doc::OneRankParts parts = parts_of(w);
  const double recorded_s = covers_step ? w.one_rank_step_s() : parts.forward_s + parts.backward_s;
  if (known && recorded_s > 0) {
    w = doc::with_times(std::move(w), step_s / recorded_s);
  } else if (step_s < w.backward_s) {
    throw UsageError(fmt::format("--step-time: {} is less than the Workload's backward pass of {}",
                                 format_time(step_s), format_time(w.backward_s)));
  } else {
    (covers_step ? w.step_s : w.forward_s) = covers_step ? step_s : step_s - w.backward_s;
  }
  w.step_low_s.reset(), w.step_high_s.reset();
  w.step_origin = "as --step-time says";
  return w;
}

}  // namespace

doc::Workload load_workload(const WorkloadSource& source) {
  if (source.reference.empty())
    throw UsageError("-w: expected a Workload, found none; give a file or zoo:NAME");
  if (source.step_time && !(source.step_time->value > 0))
    throw UsageError("--step-time: expected more than 0 s");
  if (const auto name = zoo_name(source.reference)) return from_zoo(*name, source);
  if (!source.input.empty() || source.classes > 0 || source.batch > 0)
    throw UsageError("--input, --classes and --batch go with -w zoo:NAME; a file has its own");
  doc::Workload w = source.held ? *source.held : doc::load_workload(source.reference);
  if (!source.step_time) return w;
  return with_step(std::move(w), source.step_time->value, source.step_time_covers_step);
}

}  // namespace linerate::models
