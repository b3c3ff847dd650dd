// Reads -w: a file, zoo:NAME or params:SIZE. A file has its own times, which --step-time scales. A
// model has shapes and no times, so it needs --step-time. A size has neither; its gradients count
// as equal tensors that get ready evenly.
#include "linerate/models/workload_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "linerate/core/dtype.hpp"
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

/// "30.8M", "7B", or a plain number.
std::int64_t parse_count(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMBT";
  std::string_view number = trim(text);
  double unit = 1;
  if (!number.empty())
    if (const auto at = kSuffixes.find(number.back()); at != std::string_view::npos) {
      unit = std::pow(1e3, static_cast<double>(at) + 1);
      number.remove_suffix(1);
    }
  constexpr double kMostParameters = 1e14;
  double count = 0;
  try {
    count = std::round(unit * parse_number(number));
  } catch (const UsageError&) {
  }
  if (!(count >= 1 && count <= kMostParameters))
    throw UsageError(
        fmt::format("expected a number of parameters such as 30.8M or 7B, found \"{}\"", text));
  return static_cast<std::int64_t>(count);
}

// The Workload of a model whose size alone is known. It has as many tensors as networks of 50 to
// 150 layers. The number matters to strategies that send each tensor alone.
doc::Workload from_size(std::string_view size, const WorkloadSource& source) {
  constexpr std::int64_t kTensors = 100;
  if (!source.step_time)
    throw UsageError(
        fmt::format("-w {}: a size has no times; give --step-time of one device, such as 120ms",
                    source.reference));
  const std::size_t comma = size.find(',');
  DType dtype = DType::f32;
  std::int64_t parameters = 0;
  try {
    parameters = parse_count(size.substr(0, comma));
    if (comma != std::string_view::npos) dtype = parse_dtype(trim(size.substr(comma + 1)));
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("-w {}: {}", source.reference, e.what()));
  }
  doc::Workload w;
  w.name = fmt::format("{} parameters", trim(size.substr(0, comma)));
  w.source = source.reference;
  w.batch_per_rank = source.batch;
  const double step_s = source.step_time->value;
  w.forward_s = step_s / 3, w.backward_s = step_s * 2 / 3;
  const std::int64_t tensors = std::min(kTensors, parameters);
  for (std::int64_t i = 0; i < tensors; ++i)
    w.gradients.push_back(
        {.name = fmt::format("part {}", i),
         .elements = parameters * (i + 1) / tensors - parameters * i / tensors,
         .dtype = dtype,
         .registration = static_cast<int>(tensors - 1 - i),
         .ready_s = w.backward_s * static_cast<double>(i + 1) / static_cast<double>(tensors)});
  if (source.step_time_covers_step) w.step_s = step_s;
  w.step_origin = fmt::format(
      "as --step-time says; only the model's size is known, so its gradients count as {} tensors "
      "of one size that get ready evenly over backward, two thirds of the step",
      tensors);
  return w;
}

/// The Workload with this step, in seconds. A step that was known is scaled with all its parts. A
/// step that was not known is completed: the rest becomes the forward pass.
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
    throw UsageError("-w: expected a Workload, found none; give a file, zoo:NAME or params:SIZE");
  if (source.step_time && !(source.step_time->value > 0))
    throw UsageError("--step-time: expected more than 0 s");
  if (const auto name = zoo_name(source.reference)) return from_zoo(*name, source);
  constexpr std::string_view kSize = "params:";
  const bool is_size = source.reference.starts_with(kSize);
  if (is_size && source.input.empty() && source.classes == 0)
    return from_size(std::string_view(source.reference).substr(kSize.size()), source);
  if (!source.input.empty() || source.classes > 0 || source.batch > 0)
    throw UsageError(fmt::format("--input, --classes and --batch go with -w zoo:NAME; {}",
                                 is_size ? "a size takes --batch alone" : "a file has its own"));
  doc::Workload w = source.held ? *source.held : doc::load_workload(source.reference);
  if (!source.step_time) return w;
  return with_step(std::move(w), source.step_time->value, source.step_time_covers_step);
}

}  // namespace linerate::models
