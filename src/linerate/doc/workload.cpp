// The JSON of a Workload (fields.hpp), and the rules that its numbers keep. Gradients stand in
// ready order, parts fit into the step, and sums fit into 64 bits. Planner and simulator rely on
// them without looking again.
#include "linerate/doc/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/fields.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::doc {
namespace {

constexpr DocumentKind kWorkloadDocument{"workload"};
constexpr std::int64_t kMostElements = 1'000'000'000'000'000;  // sums of bytes stay below 2^63
constexpr std::int64_t kMostDimension = 10'000'000;  // times groups: triangles stay below 2^63
constexpr std::int64_t kMostGroups = 100'000;
constexpr int kMostAccumulation = 1'000'000;
constexpr std::int64_t kMostMessage = 400'000'000'000;  // times ranks: below 2^63
constexpr std::int64_t kMostPeriod = 1'000;
constexpr double kRounding = 1 - 1e-9;

void check_rows(const JsonReader& r, const Gradient& g) {
  if (g.rows && g.elements % *g.rows != 0)
    r.at("rows").fail(
        fmt::format("expected a divisor of {} elements, found {}", g.elements, *g.rows));
}

// A gradient's layer must be one that the document lists, or unknown.
struct LayerIndex {
  const Workload& workload;
  std::int64_t read(const JsonReader& r) const {
    const std::int64_t layer = r.integer();
    const std::size_t layers = workload.layers.size();
    if (layer < -1 || layer >= static_cast<std::int64_t>(layers))
      r.refuse(fmt::format("-1 (unknown) or an index below {}", layers));
    return layer;
  }
};

void check_ready_order(const JsonReader& r, const Workload& w) {
  double before = 0;
  for (std::size_t i = 0; i < w.gradients.size(); before = w.gradients[i++].ready_s)
    if (!(w.gradients[i].ready_s >= before))
      r.at("gradients", i, "ready_s")
          .refuse(fmt::format("at least {} (gradients stand in the order in which they get ready)",
                              before));
}

// Turns begin at 0 and follow each other, so each turn has gradients.
void check_turns(const JsonReader& r, const Workload& w) {
  int before = 0;
  for (std::size_t i = 0; i < w.gradients.size(); before = w.gradients[i++].turn)
    if (const int least = i == 0 ? 0 : before, most = i == 0 ? 0 : before + 1;
        w.gradients[i].turn < least || w.gradients[i].turn > most)
      r.at("gradients", i, "turn")
          .refuse(fmt::format("{} to {} (turns follow each other, from 0)", least, most));
}

// Blocks stand in forward order, and a layer has at most one: the gradients of a layer are those of
// its block.
void check_forward_order(const JsonReader& r, const Workload& w) {
  for (std::size_t i = 1; i < w.blocks.size(); ++i)
    if (w.blocks[i].layer <= w.blocks[i - 1].layer)
      r.at("blocks", i, "layer")
          .refuse(fmt::format("more than {} (blocks stand in forward order, one a layer)",
                              w.blocks[i - 1].layer));
}

/// A strategy, or nothing.
struct StrategyText {
  std::string read(const JsonReader& r) const {
    if (!r.string().empty()) r.parsed(parse_strategy);
    return r.string();
  }
};

// The parts must fit into the whole; otherwise later times would be negative. Sums in another order
// may differ by a rounding.
void check_times(const JsonReader& r, const Workload& w) {
  if (!w.gradients.empty() && w.backward_s < w.gradients.back().ready_s * kRounding)
    r.at("backward_s")
        .refuse(fmt::format("at least the last ready_s, {}", w.gradients.back().ready_s));
  if (w.step_s && *w.step_s < w.backward_s * kRounding)
    r.at("step_s").refuse(fmt::format("at least backward_s, {}", w.backward_s));
  if (w.step_low_s && *w.step_low_s > w.one_rank_step_s() / kRounding)
    r.at("step_low_s").refuse(fmt::format("at most the step, {}", w.one_rank_step_s()));
  if (w.step_high_s && *w.step_high_s < w.one_rank_step_s() * kRounding)
    r.at("step_high_s").refuse(fmt::format("at least the step, {}", w.one_rank_step_s()));
}

/// The collectives that a Plan's task can be.
constexpr std::array<std::string_view, 5> kPlannedCollectives = {
    name_of(Collective::all_reduce), name_of(Collective::reduce_scatter),
    name_of(Collective::all_gather), name_of(Collective::all_to_all),
    name_of(Collective::broadcast)};

void check_other_group(const JsonReader& r, const OtherCollective& o) {
  if (o.group == 1) r.at("group").refuse("0 for all ranks, or 2 or more that do it together");
}

// After the update a moment means nothing; in backward it must lie within it.
void check_other_place(const JsonReader& r, const OtherCollective& o, const Workload& w) {
  if (o.place == StepPlace::update && o.at_s != 0)
    r.at("at_s").refuse("none, as it runs after the update");
  if (o.place == StepPlace::backward && o.at_s > w.backward_s / kRounding)
    r.at("at_s").refuse(fmt::format("at most backward_s, {}", w.backward_s));
}

/// Steps have a kind for each set of collectives that run in them, so the intervals must repeat
/// together soon.
void check_periods(const JsonReader& r, const Workload& w) {
  std::int64_t period = 1;
  for (std::size_t i = 0; i < w.other_collectives.size(); ++i)
    if ((period = std::lcm(period, std::int64_t{w.other_collectives[i].every})) > kMostPeriod)
      r.at("other_collectives", i, "every")
          .refuse(
              fmt::format("numbers of steps that repeat together within {} steps, as 2, 4 and 8 do",
                          kMostPeriod));
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

}  // namespace

void fields(auto& v, Is<Layer> auto& layer) {
  v.required("name", layer.name);
  v.optional("kind", layer.kind);
  v.optional("forward_s", layer.forward_s, seconds);
  v.optional("backward_s", layer.backward_s, seconds);
  v.optional("flops", layer.flops, at_least_zero);
}

// A gradient's registration is its place in the file unless it says another one.
void fields(auto& v, Is<Gradient> auto& g, const Workload& w) {
  v.required("name", g.name);
  v.required("elements", g.elements, Range{0, kMostElements});
  v.optional("dtype", g.dtype, parse_dtype);
  v.optional("layer", g.layer, LayerIndex{w});
  v.defaulted("registration", g.registration, w.gradients.size(), Range{INT32_MIN, INT32_MAX});
  v.required("ready_s", g.ready_s, seconds);
  v.written_if(g.rows.has_value(), "rows", g.rows, Range{1, kMostElements});
  v.written_if(g.turn > 0, "turn", g.turn, Range{0, INT32_MAX - 1});
  v.hold(check_rows, g);
}

void fields(auto& v, Is<AddCost> auto& a) {
  v.required("bytes", a.bytes, at_least_zero);
  v.required("seconds", a.seconds, seconds);
}

void fields(auto& v, Is<OtherCollective> auto& o, const Workload& w) {
  v.required("collective", o.collective, kPlannedCollectives);
  v.required("bytes", o.bytes, Range{1, kMostMessage});
  v.optional("per_rank", o.per_rank);
  v.optional("group", o.group, Range{0, kMostRanks});
  v.hold(check_other_group, o);
  v.required("place", o.place, kStepPlaceNames);
  v.optional("at_s", o.at_s, seconds);
  v.optional("every", o.every, Range{1, kMostPeriod});
  v.hold(check_other_place, o, w);
}

void fields(auto& v, Is<Block> auto& b, const Workload& w) {
  v.required("layer", b.layer, Range{0, static_cast<std::int64_t>(w.layers.size()) - 1});
  v.optional("kind", b.kind, parse_block_kind);
  if (b.kind == BlockKind::unit_wise)
    v.optional("a", b.a, Range{0, 0});
  else
    v.required("a", b.a, Range{1, kMostDimension});
  v.required("g", b.g, Range{1, kMostDimension});
  v.optional("groups", b.groups, Range{1, b.kind == BlockKind::kronecker ? kMostGroups : 1});
  v.optional("rows_a", b.rows_a, Range{0, kMostElements});
  v.optional("rows_g", b.rows_g, Range{0, kMostElements});
  v.written_if(b.factor_a_s.has_value(), "factor_a_s", b.factor_a_s, seconds);
  v.written_if(b.factor_g_s.has_value(), "factor_g_s", b.factor_g_s, seconds);
}

void fields(auto& v, Is<RecordedStep> auto& r) {
  v.required("step_s", r.step_s, seconds);
  v.required("ranks", r.ranks, Range{1, kMostRanks});
  v.written_if(r.least_s.has_value(), "least_s", r.least_s, seconds);
  v.written_if(r.on_cpu, "on_cpu", r.on_cpu);
}

void fields(auto& v, Is<SeveralRanks> auto& s) {
  v.required("compute_factor", s.compute_factor, one_or_more);
  v.written_if(s.communication_s.has_value(), "communication_s", s.communication_s, seconds);
  v.written_if(s.compute_slowdown.has_value(), "compute_slowdown", s.compute_slowdown, one_or_more);
}

void fields(auto& v, Is<Workload> auto& w) {
  const auto of_workload = [&w](auto& item, auto& x) { fields(item, x, std::as_const(w)); };
  v.optional("name", w.name);
  v.optional("source", w.source);
  v.optional("batch_per_rank", w.batch_per_rank, Range{0, INT64_MAX});
  v.optional("buffer_bytes", w.buffer_bytes, Range{0, INT64_MAX});
  v.required("backward_s", w.backward_s, seconds);
  v.optional("forward_s", w.forward_s, seconds);
  v.optional("update_s", w.update_s, seconds);
  v.optional("tail_s", w.tail_s, seconds);
  v.optional("step_s", w.step_s, seconds);
  v.written_if(w.step_low_s.has_value(), "step_low_s", w.step_low_s, seconds);
  v.written_if(w.step_high_s.has_value(), "step_high_s", w.step_high_s, seconds);
  v.written_if(!w.step_origin.empty(), "step_origin", w.step_origin);
  v.optional("layers", w.layers);
  v.required("gradients", w.gradients, of_workload);
  v.hold(check_ready_order, w);
  v.hold(check_turns, w);
  v.optional("add_cost", w.add_cost);
  v.written_if(!w.blocks.empty(), "blocks", w.blocks, of_workload);
  v.hold(check_forward_order, w);
  v.optional("accumulation", w.accumulation, Range{1, kMostAccumulation});
  v.written_if(!w.current.empty(), "current", w.current, StrategyText{});
  v.written_if(w.recorded.has_value(), "recorded", w.recorded);
  v.written_if(w.several_ranks.has_value(), "several_ranks", w.several_ranks);
  v.written_if(w.split_by_flops, "split_by_flops", w.split_by_flops);
  v.written_if(!w.other_collectives.empty(), "other_collectives", w.other_collectives, of_workload);
  v.hold(check_periods, w);
  v.hold(check_times, w);
  v.hold(check_size, w);
}

std::string Workload::in_words() const {
  return name.empty() ? "the Workload" : fmt::format("the Workload \"{}\"", name);
}

std::int64_t Workload::gradient_bytes() const {
  std::int64_t total = 0;
  for (const Gradient& g : gradients) total += g.bytes();
  return total;
}

bool Workload::knows_shapes() const {
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const Gradient& g) { return g.rows.has_value(); });
}

// T_1 as it was measured, else the sum of the parts that are known.
double Workload::one_rank_step_s() const {
  return step_s ? *step_s
                : backward_s + forward_s.value_or(0) + update_s.value_or(0) + tail_s.value_or(0);
}

double Workload::outside_backward_s() const {
  return std::max(0.0, one_rank_step_s() - backward_s);  // a rounding may be below 0
}

std::string step_in_words(const Workload& w) {
  std::string text = "T_1 " + format_time(w.one_rank_step_s());
  if (w.step_low_s && w.step_high_s)
    text += fmt::format(" ({} to {})", format_time(*w.step_low_s), format_time(*w.step_high_s));
  return w.step_origin.empty() ? text : text + ": " + w.step_origin;
}

std::string to_json(const Workload& w) { return written_document(kWorkloadDocument, w); }
Workload workload_from_json(const std::string& text, const std::string& place) {
  return read_document<Workload>(kWorkloadDocument, text, place);
}

Workload load_workload(const std::filesystem::path& path) {
  return workload_from_json(read_file(path), path.string());
}
void validate(const Workload& w, const std::string& place) {
  validate_document(kWorkloadDocument, w, place.empty() ? w.in_words() : place);
}
void save(const Workload& w, const std::filesystem::path& path) {
  save_document(kWorkloadDocument, w, path);
}

}  // namespace linerate::doc
