#include "linerate/doc/prediction.hpp"

#include <cmath>

#include "linerate/doc/fields.hpp"

namespace linerate::doc {
namespace {

constexpr DocumentKind kPredictionsDocument{"predictions"};

/// Writes whole numbers without ".0", since rates and ratios read better so.
struct PlainNumber {
  NumberCheck read;
  Json write(double value) const {
    constexpr double kMostExact = 9e15;  // whole doubles below are whole numbers
    if (std::abs(value) < kMostExact && value == std::floor(value))
      return static_cast<std::int64_t>(value);
    return value;
  }
};
double any_number(const JsonReader& r) { return r.number(); }

struct StepTime {
  Bounded read(const JsonReader& r) const { return {seconds(r)}; }
  Json write(const Bounded& step_s) const { return step_s.value; }
};

using Ends = std::vector<std::optional<double>>;  // {low, high}

// The JSON has the interval next to the step: "step_s": 0.1, "interval_s": [0.09, 0.12].
void take_interval(const JsonReader& r, Prediction& p, const std::optional<Ends>& ends) {
  if (!ends) return;
  if (ends->size() != 2) r.at("interval_s").refuse("[low, high]");
  if (p.step_s) p.step_s->low = ends->front(), p.step_s->high = ends->back();
}

}  // namespace

void step_fields(auto& v, Is<Prediction> auto& p) {
  v.optional("step_s", p.step_s, StepTime{});
  std::optional<Ends> ends;
  if (has_interval(p)) ends = {p.step_s->low, p.step_s->high};
  v.optional("interval_s", ends, seconds);
  v.on_read(take_interval, p, ends);
}

// A part may be below 0 if the next one makes room for what the step waits for.
void fields(auto& v, Is<StepParts> auto& parts) {
  for (std::size_t p = 0; p < parts.size(); ++p) v.required(kStepPartNames[p], parts[p]);
}

void fields(auto& v, Is<Prediction> auto& p, bool agarwal) {
  v.required("strategy", p.strategy);
  v.optional("changes_convergence", p.changes_convergence);
  v.required("ranks", p.ranks, Range{1, INT32_MAX});
  v.required("bandwidth_bit_per_s", p.bandwidth_bit_per_s, PlainNumber{positive});
  v.optional("compression_ratio", p.compression_ratio, PlainNumber{any_number});
  step_fields(v, p);
  v.optional("scaling_factor", p.scaling_factor);
  v.optional("communication_s", p.communication_s, seconds);
  v.optional("exposed_communication_s", p.exposed_communication_s, seconds);
  v.written_if(p.parts_s.has_value(), "parts_s", p.parts_s);
  v.written_if(agarwal, "required_ratio", p.required_ratio);
  v.written_if(agarwal, "required_ratio_ddp", p.required_ratio_ddp);
  v.written_if(agarwal, "encode_budget_s", p.encode_budget_s);  // below 0: coding cannot pay
}

void fields(auto& v, Is<Predictions> auto& all) {
  v.optional("workload", all.workload);
  v.optional("gradients", all.gradients, Range{0, INT64_MAX});
  v.optional("gradient_bytes", all.gradient_bytes, Range{0, INT64_MAX});
  v.optional("one_rank_step_s", all.one_rank_step_s, seconds);
  v.optional("preset", all.preset);
  const bool agarwal = all.preset == kAgarwal2021;
  v.required("predictions", all.predictions,
             [agarwal](auto& item, auto& p) { fields(item, p, agarwal); });
  v.optional("notes", all.notes);
}

std::string to_json(const Predictions& all) { return written_document(kPredictionsDocument, all); }
Predictions predictions_from_json(const std::string& text, const std::string& place) {
  const Json json = parse_json(text, place);
  const JsonReader r(json, place);
  if (r.has("document")) expect_document(r, kPredictionsDocument);
  return read_body<Predictions>(r);
}
void validate(const Predictions& all, const std::string& place) {
  validate_document(kPredictionsDocument, all, place.empty() ? "the Predictions" : place);
}

}  // namespace linerate::doc
