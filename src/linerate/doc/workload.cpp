#include "linerate/doc/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::doc {
namespace {

constexpr std::int64_t kMostElements = 1'000'000'000'000'000;  // sums of bytes stay below 2^63
constexpr std::int64_t kMostDimension = 10'000'000;  // times groups: triangles stay below 2^63
constexpr std::int64_t kMostGroups = 100'000;
constexpr int kMostAccumulation = 1'000'000;
constexpr double kRounding = 1 - 1e-9;
constexpr double kMostScale = 1000;

Json json_of_layer(const Layer& layer) {
  return {{"name", layer.name},
          {"kind", layer.kind},
          {"forward_s", json_of(layer.forward_s)},
          {"backward_s", json_of(layer.backward_s)},
          {"flops", layer.flops}};
}

Json json_of_gradient(const Gradient& g) {
  Json json = {{"name", g.name},   {"elements", g.elements},         {"dtype", name_of(g.dtype)},
               {"layer", g.layer}, {"registration", g.registration}, {"ready_s", g.ready_s}};
  if (g.rows > 1) json["rows"] = g.rows;
  return json;
}

Json json_of_block(const Block& b) {
  Json json = {{"layer", b.layer},   {"kind", name_of(b.kind)}, {"a", b.a},          {"g", b.g},
               {"groups", b.groups}, {"rows_a", b.rows_a},      {"rows_g", b.rows_g}};
  if (b.factor_a_s) json["factor_a_s"] = *b.factor_a_s;
  if (b.factor_g_s) json["factor_g_s"] = *b.factor_g_s;
  return json;
}

Layer read_layer(const JsonReader& r) {
  return {r.string("name"), r.string_or("kind", ""), r.optional_seconds("forward_s"),
          r.optional_seconds("backward_s"), r.has("flops") ? r.at_least_zero("flops") : 0};
}

Gradient read_gradient(const JsonReader& r, int position, const Workload& w) {
  Gradient g;
  g.name = r.string("name");
  g.elements = r.integer_in("elements", 0, kMostElements);
  if (r.has("rows")) g.rows = r.integer_in("rows", 1, kMostElements);
  if (g.elements % g.rows != 0)
    r.at("rows").fail(
        fmt::format("expected a divisor of {} elements, found {}", g.elements, g.rows));
  if (r.has("dtype")) g.dtype = r.at("dtype").parsed(parse_dtype);
  const std::int64_t layer = r.integer_or("layer", -1);
  if (layer < -1 || layer >= static_cast<std::int64_t>(w.layers.size()))
    r.at("layer").refuse(fmt::format("-1 (unknown) or an index below {}", w.layers.size()));
  g.layer = static_cast<int>(layer);
  g.registration = r.has("registration")
                       ? static_cast<int>(r.integer_in("registration", INT32_MIN, INT32_MAX))
                       : position;
  g.ready_s = r.seconds("ready_s");
  const double before = w.gradients.empty() ? 0 : w.gradients.back().ready_s;
  if (!(g.ready_s >= before))
    r.at("ready_s").refuse(
        fmt::format("at least {} (gradients stand in the order in which they get ready)", before));
  return g;
}

// Forward order, and one block a layer: the gradients of a layer are those of its block.
Block read_block(const JsonReader& r, const Workload& w) {
  Block b;
  b.layer =
      static_cast<int>(r.integer_in("layer", 0, static_cast<std::int64_t>(w.layers.size()) - 1));
  if (!w.blocks.empty() && b.layer <= w.blocks.back().layer)
    r.at("layer").refuse(fmt::format("more than {} (blocks stand in forward order, one a layer)",
                                     w.blocks.back().layer));
  if (r.has("kind")) b.kind = r.at("kind").parsed(parse_block_kind);
  const bool has_a = b.kind != BlockKind::unit_wise;
  if (has_a || r.has("a")) b.a = r.integer_in("a", has_a ? 1 : 0, has_a ? kMostDimension : 0);
  b.g = r.integer_in("g", 1, kMostDimension);
  const bool may_group = b.kind == BlockKind::kronecker;
  if (r.has("groups"))
    b.groups = static_cast<int>(r.integer_in("groups", 1, may_group ? kMostGroups : 1));
  if (r.has("rows_a")) b.rows_a = r.integer_in("rows_a", 0, kMostElements);
  if (r.has("rows_g")) b.rows_g = r.integer_in("rows_g", 0, kMostElements);
  b.factor_a_s = r.optional_seconds("factor_a_s");
  b.factor_g_s = r.optional_seconds("factor_g_s");
  return b;
}

// The parts must fit into the whole: what does not would become a negative time further on.
void check_times(const JsonReader& r, const Workload& w) {
  if (!w.gradients.empty() && w.backward_s < w.gradients.back().ready_s * kRounding)
    r.at("backward_s")
        .refuse(fmt::format("at least the last ready_s, {}", w.gradients.back().ready_s));
  if (w.step_s && *w.step_s < w.backward_s * kRounding)
    r.at("step_s").refuse(fmt::format("at least backward_s, {}", w.backward_s));
}

void check_size(const JsonReader& r, const Workload& w) {
  std::int64_t left = kMostElements;
  for (const Gradient& g : w.gradients)
    if ((left -= g.elements) < 0)
      r.at("gradients").fail(fmt::format("expected at most {} elements in all", kMostElements));
  left = kMostElements;
  for (const Block& b : w.blocks)
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      if ((left -= packed_elements(b, side)) < 0)
        r.at("blocks").fail(fmt::format("expected at most {} elements in all", kMostElements));
}

Workload read_workload(const JsonReader& r) {
  Workload w;
  w.name = r.string_or("name", "");
  w.source = r.string_or("source", "");
  if (r.has("batch_per_rank")) w.batch_per_rank = r.integer_in("batch_per_rank", 0, INT64_MAX);
  if (r.has("buffer_bytes")) w.buffer_bytes = r.integer_in("buffer_bytes", 0, INT64_MAX);
  w.backward_s = r.seconds("backward_s");
  w.forward_s = r.optional_seconds("forward_s");
  w.update_s = r.optional_seconds("update_s");
  w.tail_s = r.optional_seconds("tail_s");
  w.step_s = r.optional_seconds("step_s");
  if (r.has("layers"))
    for (const JsonReader& layer : r.at("layers").items()) w.layers.push_back(read_layer(layer));
  for (const JsonReader& g : r.at("gradients").items())
    w.gradients.push_back(read_gradient(g, static_cast<int>(w.gradients.size()), w));
  if (r.has("add_cost"))
    for (const JsonReader& a : r.at("add_cost").items())
      w.add_cost.push_back({a.at_least_zero("bytes"), a.seconds("seconds")});
  if (r.has("blocks"))
    for (const JsonReader& b : r.at("blocks").items()) w.blocks.push_back(read_block(b, w));
  if (r.has("accumulation"))
    w.accumulation = static_cast<int>(r.integer_in("accumulation", 1, kMostAccumulation));
  w.current = r.string_or("current", "");
  if (!w.current.empty()) r.at("current").parsed(parse_strategy);
  w.split_by_flops = r.has("split_by_flops") && r.at("split_by_flops").boolean();
  check_times(r, w);
  check_size(r, w);
  return w;
}

/// A matrix keeps its rows where it has an element for each.
std::int64_t whole_rows(std::int64_t elements, std::int64_t& rows) {
  if (elements < rows) rows = 1;
  return (elements + rows / 2) / rows * rows;
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

Workload scaled(Workload w, double factor) {
  if (!(factor > 0 && factor <= kMostScale))
    throw UsageError(
        fmt::format("expected a factor above 0 and at most {}, found {:g}", kMostScale, factor));
  if (factor == 1) return w;
  const auto times = [factor](auto& value) { value *= factor; };
  const auto known_times = [factor](std::optional<double>& value) {
    if (value) *value *= factor;
  };
  const auto count = [factor](std::int64_t n) {
    return n == 0 ? 0 : std::max<std::int64_t>(1, std::llround(static_cast<double>(n) * factor));
  };
  for (Layer& layer : w.layers)
    known_times(layer.forward_s), known_times(layer.backward_s), times(layer.flops);
  for (Gradient& g : w.gradients) {
    g.elements = whole_rows(count(g.elements), g.rows);
    times(g.ready_s);
  }
  for (Block& block : w.blocks) block = scaled(block, factor);
  times(w.backward_s);
  for (std::optional<double>* part : {&w.forward_s, &w.update_s, &w.tail_s, &w.step_s})
    known_times(*part);
  w.buffer_bytes = count(w.buffer_bytes);
  w.name += fmt::format(" x {:g}", factor);
  return w;
}

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
  if (!w.blocks.empty()) json["blocks"] = Json::array();
  for (const Block& b : w.blocks) json["blocks"].push_back(json_of_block(b));
  json["accumulation"] = w.accumulation;
  if (!w.current.empty()) json["current"] = w.current;
  if (w.split_by_flops) json["split_by_flops"] = true;
  return json.dump(1) + "\n";
}

Workload workload_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, "workload", read_workload);
}

Workload load_workload(const std::filesystem::path& path) {
  return workload_from_json(read_file(path), path.string());
}
void save(const Workload& w, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(w));
}

}  // namespace linerate::doc
