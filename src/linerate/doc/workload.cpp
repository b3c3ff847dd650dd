#include "linerate/doc/workload.hpp"

#include <fmt/format.h>

#include "linerate/core/file.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

Json json_of_layer(const Layer& layer) {
  return {{"name", layer.name},
          {"kind", layer.kind},
          {"forward_s", json_of(layer.forward_s)},
          {"backward_s", json_of(layer.backward_s)},
          {"flops", layer.flops}};
}

Json json_of_gradient(const Gradient& g) {
  return {{"name", g.name},   {"elements", g.elements},         {"dtype", name_of(g.dtype)},
          {"layer", g.layer}, {"registration", g.registration}, {"ready_s", g.ready_s}};
}

Layer read_layer(const JsonReader& r) {
  return {r.string("name"), r.string_or("kind", ""), r.optional_number("forward_s"),
          r.optional_number("backward_s"), r.number_or("flops", 0)};
}

Gradient read_gradient(const JsonReader& r, int position, const Workload& w) {
  Gradient g;
  g.name = r.string("name");
  g.elements = r.integer("elements");
  if (g.elements < 0) r.at("elements").fail("expected a count of at least 0");
  if (r.has("dtype")) g.dtype = r.at("dtype").parsed(parse_dtype);
  g.layer = static_cast<int>(r.integer_or("layer", -1));
  if (g.layer < -1 || g.layer >= static_cast<int>(w.layers.size()))
    r.at("layer").fail(fmt::format("expected -1 (unknown) or an index below {}", w.layers.size()));
  g.registration = static_cast<int>(r.integer_or("registration", position));
  g.ready_s = r.number("ready_s");
  const double before = w.gradients.empty() ? 0 : w.gradients.back().ready_s;
  if (!(g.ready_s >= before))
    r.at("ready_s").fail(fmt::format(
        "expected at least {} (gradients stand in the order in which they get ready)", before));
  return g;
}

}  // namespace

std::int64_t Workload::gradient_bytes() const {
  std::int64_t total = 0;
  for (const Gradient& g : gradients) total += g.bytes();
  return total;
}

double Workload::one_rank_step_s() const {
  return step_s ? *step_s
                : backward_s + forward_s.value_or(0) + update_s.value_or(0) + tail_s.value_or(0);
}

double Workload::outside_backward_s() const { return one_rank_step_s() - backward_s; }

std::string to_json(const Workload& w) {
  Json json = new_document("workload");
  json["name"] = w.name;
  json["source"] = w.source;
  json["batch_per_rank"] = w.batch_per_rank;
  json["buffer_bytes"] = w.buffer_bytes;
  json["backward_s"] = w.backward_s;
  json["forward_s"] = json_of(w.forward_s);
  json["update_s"] = json_of(w.update_s);
  json["tail_s"] = json_of(w.tail_s);
  json["step_s"] = json_of(w.step_s);
  json["layers"] = Json::array();
  for (const Layer& layer : w.layers) json["layers"].push_back(json_of_layer(layer));
  json["gradients"] = Json::array();
  for (const Gradient& g : w.gradients) json["gradients"].push_back(json_of_gradient(g));
  json["add_cost"] = Json::array();
  for (const AddCost& a : w.add_cost)
    json["add_cost"].push_back({{"bytes", a.bytes}, {"seconds", a.seconds}});
  return json.dump(1) + "\n";
}

Workload workload_from_json(const std::string& text, const std::string& place) {
  const Json json = parse_json(text, place);
  const JsonReader r(json, place);
  expect_document(r, "workload");
  Workload w;
  w.name = r.string_or("name", "");
  w.source = r.string_or("source", "");
  w.batch_per_rank = r.integer_or("batch_per_rank", 0);
  w.buffer_bytes = r.integer_or("buffer_bytes", 0);
  w.backward_s = r.number("backward_s");
  w.forward_s = r.optional_number("forward_s");
  w.update_s = r.optional_number("update_s");
  w.tail_s = r.optional_number("tail_s");
  w.step_s = r.optional_number("step_s");
  if (r.has("layers"))
    for (const JsonReader& layer : r.at("layers").items()) w.layers.push_back(read_layer(layer));
  for (const JsonReader& g : r.at("gradients").items())
    w.gradients.push_back(read_gradient(g, static_cast<int>(w.gradients.size()), w));
  if (r.has("add_cost"))
    for (const JsonReader& a : r.at("add_cost").items())
      w.add_cost.push_back({a.number("bytes"), a.number("seconds")});
  if (!w.gradients.empty() && w.backward_s < w.gradients.back().ready_s * (1 - 1e-9))
    r.at("backward_s")
        .fail(fmt::format("expected at least the last ready_s, {}", w.gradients.back().ready_s));
  return w;
}

Workload load_workload(const std::filesystem::path& path) {
  return workload_from_json(read_file(path), path.string());
}
void save(const Workload& w, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(w));
}

}  // namespace linerate::doc
