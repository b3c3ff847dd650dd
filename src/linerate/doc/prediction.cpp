#include "linerate/doc/prediction.hpp"

#include <cmath>

#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

constexpr std::string_view kPredictions = "predictions";
constexpr double kMostExact = 9e15;  // whole doubles below are whole numbers

// Whole numbers without ".0": rates and ratios read better.
Json number(double value) {
  if (std::abs(value) < kMostExact && value == std::floor(value))
    return static_cast<std::int64_t>(value);
  return value;
}

Json json_of_parts(const StepParts& parts) {
  Json json;
  for (std::size_t p = 0; p < parts.size(); ++p) json[std::string(kStepPartNames[p])] = parts[p];
  return json;
}

Json json_of_prediction(const Prediction& p, bool agarwal) {
  const bool bounded = p.step_s && p.step_s->has_interval();
  Json json = {
      {"strategy", p.strategy},
      {"changes_convergence", p.changes_convergence},
      {"ranks", p.ranks},
      {"bandwidth_bit_per_s", p.bandwidth_bit_per_s ? number(*p.bandwidth_bit_per_s) : nullptr},
      {"compression_ratio", number(p.compression_ratio)},
      {"step_s", p.step_s ? Json(p.step_s->value) : Json(nullptr)},
      {"interval_s", bounded ? Json{*p.step_s->low, *p.step_s->high} : Json(nullptr)},
      {"scaling_factor", json_of(p.scaling_factor)},
      {"communication_s", json_of(p.communication_s)},
      {"exposed_communication_s", json_of(p.exposed_communication_s)}};
  if (p.parts_s) json["parts_s"] = json_of_parts(*p.parts_s);
  if (!agarwal) return json;
  json["required_ratio"] = json_of(p.required_ratio);
  json["required_ratio_ddp"] = json_of(p.required_ratio_ddp);
  json["encode_budget_s"] = json_of(p.encode_budget_s);
  return json;
}

// A part may be below 0, where the one after it makes room for what the step waits for.
std::optional<StepParts> read_parts(const JsonReader& r) {
  if (!r.has("parts_s")) return std::nullopt;
  StepParts parts{};
  for (std::size_t p = 0; p < parts.size(); ++p)
    parts[p] = r.at("parts_s").number(kStepPartNames[p]);
  return parts;
}

std::optional<Bounded> read_bounded_step(const JsonReader& r) {
  const std::optional<double> step_s = r.optional_seconds("step_s");
  if (!step_s) return std::nullopt;
  Bounded step{*step_s};
  if (!r.has("interval_s") || r.at("interval_s").value().is_null()) return step;
  const std::vector<JsonReader> ends = r.at("interval_s").items();
  if (ends.size() != 2) r.at("interval_s").refuse("[low, high]");
  if (!ends[0].value().is_null()) step.low = ends[0].seconds();
  if (!ends[1].value().is_null()) step.high = ends[1].seconds();
  return step;
}

Prediction read_prediction(const JsonReader& r) {
  Prediction p;
  p.strategy = r.string("strategy");
  p.ranks = static_cast<int>(r.integer_in("ranks", 1, INT32_MAX));
  if (!r.at("bandwidth_bit_per_s").value().is_null())
    p.bandwidth_bit_per_s = r.positive("bandwidth_bit_per_s");
  p.compression_ratio = r.optional_number("compression_ratio").value_or(1);
  p.changes_convergence = r.has("changes_convergence") && r.at("changes_convergence").boolean();
  p.step_s = read_bounded_step(r);
  p.scaling_factor = r.optional_number("scaling_factor");
  p.communication_s = r.optional_seconds("communication_s");
  p.exposed_communication_s = r.optional_seconds("exposed_communication_s");
  p.parts_s = read_parts(r);
  p.required_ratio = r.optional_number("required_ratio");
  p.required_ratio_ddp = r.optional_number("required_ratio_ddp");
  p.encode_budget_s = r.optional_number("encode_budget_s");  // below 0: coding cannot pay
  return p;
}

}  // namespace

std::string to_json(const Predictions& all) {
  Json json = new_document(kPredictions);
  json["workload"] = all.workload;
  json["gradients"] = all.gradients;
  json["gradient_bytes"] = all.gradient_bytes;
  json["one_rank_step_s"] = json_of(all.one_rank_step_s);
  json["preset"] = all.preset;
  json["predictions"] = Json::array();
  for (const Prediction& p : all.predictions)
    json["predictions"].push_back(json_of_prediction(p, all.preset == kAgarwal2021));
  json["notes"] = all.notes;
  return json.dump(1) + "\n";
}

Predictions predictions_from_json(const std::string& text, const std::string& place) {
  const Json json = parse_json(text, place);
  const JsonReader r(json, place);
  if (r.has("document")) expect_document(r, kPredictions);
  Predictions all;
  all.workload = r.string_or("workload", "");
  all.gradients = r.integer_or("gradients", 0);
  all.gradient_bytes = r.integer_or("gradient_bytes", 0);
  all.one_rank_step_s = r.optional_seconds("one_rank_step_s");
  all.preset = r.string_or("preset", "");
  for (const JsonReader& p : r.at("predictions").items())
    all.predictions.push_back(read_prediction(p));
  if (r.has("notes"))
    for (const JsonReader& note : r.at("notes").items()) all.notes.push_back(note.string());
  return all;
}

}  // namespace linerate::doc
