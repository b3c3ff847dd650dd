#include "linerate/doc/advice.hpp"

#include <array>
#include <string_view>

#include "linerate/core/index.hpp"
#include "linerate/doc/fields.hpp"

namespace linerate::doc {
namespace {

constexpr std::array<std::string_view, 4> kStandings = {"ranked", "unranked", "does not fit",
                                                        "failed"};
constexpr std::array<std::string_view, 3> kVerdicts = {"do nothing", "change", "inconclusive"};
constexpr std::array<std::string_view, 3> kConfidences = {"unchecked", "checked", "low"};

constexpr DocumentKind kAdviceDocument{"advice"};

}  // namespace

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
