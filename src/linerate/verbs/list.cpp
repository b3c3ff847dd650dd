// Registries hold what is printed and what is written here, so a new line of theirs is in both at
// once.
#include "linerate/verbs/verbs.hpp"

#include <utility>

#include "linerate/compress/registry.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/models/catalogue.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::verbs {
namespace {

template <typename Maker>
// Most registries say no more than this of a line.
doc::Json json_of(const Registry<Maker>& registry) {
  doc::Json list = doc::Json::array();
  for (const auto& line : registry.lines())
    list.push_back({{"name", line.name}, {"line", line.line}, {"source", line.source}});
  return list;
}

template <typename Entry>
// Traits say what a strategy asks for; programs can choose by them without knowing names.
void add_strategies(doc::Json& list, const Registry<Entry>& registry, const char* kind) {
  for (const auto& line : registry.lines()) {
    const plan::Traits& t = line.make.traits;
    doc::Json json = {{"name", line.name},
                      {"kind", kind},
                      {"line", line.line},
                      {"source", line.source},
                      {"plans_by", name_of(t.plans_by)},
                      {"plans_by_cost", t.plans_by == plan::PlansBy::cost},
                      {"changes_convergence", t.changes_convergence},
                      {"needs_summable", t.needs_summable},
                      {"runs", t.runs.names()}};
    if (!t.why_not_train.empty()) json["why_not_train"] = t.why_not_train;
    list.push_back(std::move(json));
  }
}

std::string text_of(const char* what, doc::Json list) {
  return doc::Json{{what, std::move(list)}}.dump(1) + "\n";
}

}  // namespace

std::string strategies_json() {
  doc::Json list = doc::Json::array();
  add_strategies(list, plan::exchanges(), "exchange");
  add_strategies(list, plan::extras(), "extra");
  return text_of("strategies", std::move(list));
}

// Properties are asked of a compressor made with its defaults.
std::string compressors_json() {
  doc::Json list = doc::Json::array();
  for (const auto& line : compress::compressors().lines()) {
    const auto compressor = compress::make_compressor({line.name, {}});
    list.push_back({{"name", line.name},
                    {"line", line.line},
                    {"source", line.source},
                    {"summable", compress::is_summable(*compressor)},
                    {"error_feedback", name_of(compressor->residual())},
                    {"unbiased", compressor->is_unbiased()}});
  }
  return text_of("compressors", std::move(list));
}

std::string cost_models_json() { return text_of("cost_models", json_of(cost::all_reduce_forms())); }

// Start-ups of an all-reduce on 2, 8 and 32 ranks say how it grows.
std::string networks_json() {
  doc::Json list = doc::Json::array();
  for (const cost::NetworkKind& k : cost::network_kinds()) {
    doc::Json json = {{"name", k.name},
                      {"where", k.between ? "between nodes" : "inside a node"},
                      {"line", k.says}};
    if (!k.between) json["law"] = doc::kNetworkLawNames[static_cast<std::size_t>(k.law)];
    if (k.line_bytes_per_s > 0) json["line_bytes_per_s"] = k.line_bytes_per_s;
    json["efficiency"] = k.level.efficiency;
    if (k.level.most_bytes_per_s > 0) json["most_bytes_per_s"] = k.level.most_bytes_per_s;
    for (const int ranks : {2, 8, 32})
      json["start_up_s"][std::to_string(ranks)] = k.start_up_s(ranks);
    json["start_spread"] = k.level.start_spread;
    json["transfer_spread"] = k.level.transfer_spread;
    if (!k.between) json["slowdown"] = {1, k.slowdown, k.slowdown_high};
    json["measurements"] = k.level.measurements;
    json["sources"] = k.sources;
    list.push_back(std::move(json));
  }
  return text_of("networks", std::move(list));
}

std::string models_json() { return text_of("models", json_of(models::catalogue())); }

}  // namespace linerate::verbs
