// The JSON of Predictions and of Advice (fields.hpp).
#include "linerate/doc/advice.hpp"

#include <array>
#include <cmath>

#include "linerate/core/index.hpp"
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

constexpr std::array<std::string_view, 4> kStandings = {"ranked", "unranked", "does not fit",
                                                        "failed"};
constexpr std::array<std::string_view, 3> kVerdicts = {"do nothing", "change", "inconclusive"};
constexpr std::array<std::string_view, 3> kConfidences = {"unchecked", "checked", "low"};

constexpr DocumentKind kAdviceDocument{"advice"};

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

std::string_view name_of(Standing s) { return kStandings[to_index(s)]; }
std::string_view name_of(AdviceVerdict v) { return kVerdicts[to_index(v)]; }
std::string_view name_of(Confidence c) { return kConfidences[to_index(c)]; }

std::string Advice::named(const std::string& strategy) const {
  for (const Candidate& c : candidates)
    if (c.strategy == strategy && !c.named.empty()) return c.named;
  return strategy;
}

void fields(auto& v, Is<Bounded> auto& b) {
  v.required("value", b.value);
  v.optional("low", b.low);
  v.optional("high", b.high);
}

void fields(auto& v, Is<Candidate> auto& c) {
  v.required("strategy", c.strategy);
  v.written_if(!c.named.empty(), "named", c.named);
  v.defaulted("family", c.family, c.strategy);
  v.required("standing", c.standing, kStandings);
  v.optional("step_s", c.step_s);
  v.optional("communication_s", c.communication_s, seconds);
  v.optional("exposed_communication_s", c.exposed_communication_s, seconds);
  v.optional("steps_to_target", c.steps_to_target);
  v.optional("target_s", c.target_s);
  v.optional("over_current", c.over_current);
  v.required("memory_bytes", c.memory_bytes);
  v.optional("trains", c.trains);
  v.required("reason", c.reason);
}

void fields(auto& v, Is<Ceiling> auto& c) {
  v.required("remedy", c.remedy);
  v.required("step_s", c.step_s.value);
  v.written_if(c.step_s.low.has_value(), "step_low_s", c.step_s.low, seconds);
  v.written_if(c.step_s.high.has_value(), "step_high_s", c.step_s.high, seconds);
  v.required("reason", c.reason);
}

void fields(auto& v, Is<TurningPoint> auto& t) {
  v.required("quantity", t.quantity);
  v.required("low", t.low);
  v.required("high", t.high);
  v.required("below", t.below);
  v.required("above", t.above);
}

void fields(auto& v, Is<Straggler> auto& s) {
  v.required("rank", s.rank, Range{0, INT32_MAX});
  v.required("late_s", s.late_s);
  v.required("step_s", s.step_s);
  v.required("reason", s.reason);
}

void fields(auto& v, Is<Advice> auto& a) {
  v.required("workload", a.workload);
  v.required("cluster", a.cluster);
  v.required("ranks", a.ranks, Range{1, INT32_MAX});
  v.required("bandwidth_bit_per_s", a.bandwidth_bit_per_s);
  v.required("one_rank_step_s", a.one_rank_step_s);
  v.required("current", a.current);
  v.required("verdict", a.verdict, kVerdicts);
  v.required("best", a.best);
  v.required("sentence", a.sentence);
  v.optional("measured_step_s", a.measured_step_s, seconds);
  v.defaulted("confidence", a.confidence, Confidence::unchecked, kConfidences);
  v.optional("present", a.present);
  v.optional("framework", a.framework);
  v.optional("beyond", a.beyond);
  v.required("candidates", a.candidates);
  v.required("ceilings", a.ceilings);
  v.required("turning_points", a.turning_points);
  v.required("notes", a.notes);
  v.optional("stragglers", a.stragglers);
}

std::string to_json(const Advice& a) { return written_document(kAdviceDocument, a); }
Advice advice_from_json(const std::string& text, const std::string& place) {
  return read_document<Advice>(kAdviceDocument, text, place);
}
void validate(const Advice& a, const std::string& place) {
  validate_document(kAdviceDocument, a, place.empty() ? "the Advice" : place);
}

}  // namespace linerate::doc
