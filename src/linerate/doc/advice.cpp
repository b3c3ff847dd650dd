#include "linerate/doc/advice.hpp"

#include <array>
#include <string_view>

#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

constexpr std::array<std::string_view, 4> kStandings = {"ranked", "unranked", "does not fit",
                                                        "failed"};
constexpr std::array<std::string_view, 3> kVerdicts = {"do nothing", "change", "inconclusive"};

template <typename Enum, std::size_t N>
Enum parse(const JsonReader& reader, const std::array<std::string_view, N>& names) {
  const std::string text = reader.string();
  std::string known;
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
    known += (i ? ", " : "") + std::string(names[i]);
  }
  reader.fail("expected one of " + known + "; found \"" + text + "\"");
}

Json json_of_bounded(const std::optional<Bounded>& i) {
  return i ? Json{{"value", i->value}, {"low", json_of(i->low)}, {"high", json_of(i->high)}}
           : Json(nullptr);
}

std::optional<Bounded> bounded(const JsonReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::nullopt;
  const JsonReader at = reader.at(key);
  return Bounded{at.number("value"), at.optional_number("low"), at.optional_number("high")};
}

Json json_of_candidate(const Candidate& c) {
  return {{"strategy", c.strategy},
          {"family", c.family},
          {"standing", std::string(name_of(c.standing))},
          {"step_s", json_of_bounded(c.step_s)},
          {"communication_s", json_of(c.communication_s)},
          {"exposed_communication_s", json_of(c.exposed_communication_s)},
          {"steps_to_target", json_of_bounded(c.steps_to_target)},
          {"target_s", json_of_bounded(c.target_s)},
          {"over_current", json_of_bounded(c.over_current)},
          {"memory_bytes", c.memory_bytes},
          {"trains", c.trains},
          {"reason", c.reason}};
}

Candidate candidate(const JsonReader& r) {
  Candidate c;
  c.strategy = r.string("strategy");
  c.family = r.string_or("family", c.strategy);
  c.standing = parse<Standing>(r.at("standing"), kStandings);
  c.step_s = bounded(r, "step_s");
  c.communication_s = r.optional_seconds("communication_s");
  c.exposed_communication_s = r.optional_seconds("exposed_communication_s");
  c.steps_to_target = bounded(r, "steps_to_target");
  c.target_s = bounded(r, "target_s");
  c.over_current = bounded(r, "over_current");
  c.memory_bytes = r.number("memory_bytes");
  c.trains = !r.has("trains") || r.at("trains").boolean();
  c.reason = r.string("reason");
  return c;
}

Advice read_advice(const JsonReader& r) {
  Advice a;
  a.workload = r.string("workload");
  a.cluster = r.string("cluster");
  a.ranks = static_cast<int>(r.integer_in("ranks", 1, INT32_MAX));
  a.bandwidth_bit_per_s = r.number("bandwidth_bit_per_s");
  a.one_rank_step_s = r.number("one_rank_step_s");
  a.current = r.string("current");
  a.verdict = parse<AdviceVerdict>(r.at("verdict"), kVerdicts);
  a.best = r.string("best");
  a.sentence = r.string("sentence");
  for (const JsonReader& c : r.at("candidates").items()) a.candidates.push_back(candidate(c));
  for (const JsonReader& c : r.at("ceilings").items())
    a.ceilings.push_back({c.string("remedy"), c.number("step_s"), c.string("reason")});
  for (const JsonReader& t : r.at("turning_points").items())
    a.turning_points.push_back({t.string("quantity"), t.number("low"), t.number("high"),
                                t.string("below"), t.string("above")});
  for (const JsonReader& n : r.at("notes").items()) a.notes.push_back(n.string());
  if (r.has("stragglers"))
    for (const JsonReader& s : r.at("stragglers").items())
      a.stragglers.push_back({static_cast<int>(s.integer("rank")), s.number("late_s"),
                              s.number("step_s"), s.string("reason")});
  return a;
}

}  // namespace

std::string_view name_of(Standing s) { return kStandings[static_cast<std::size_t>(s)]; }
std::string_view name_of(AdviceVerdict v) { return kVerdicts[static_cast<std::size_t>(v)]; }

std::string to_json(const Advice& a) {
  Json json = new_document("advice");
  json["workload"] = a.workload;
  json["cluster"] = a.cluster;
  json["ranks"] = a.ranks;
  json["bandwidth_bit_per_s"] = a.bandwidth_bit_per_s;
  json["one_rank_step_s"] = a.one_rank_step_s;
  json["current"] = a.current;
  json["verdict"] = std::string(name_of(a.verdict));
  json["best"] = a.best;
  json["sentence"] = a.sentence;
  json["candidates"] = Json::array();
  for (const Candidate& c : a.candidates) json["candidates"].push_back(json_of_candidate(c));
  json["ceilings"] = Json::array();
  for (const Ceiling& c : a.ceilings)
    json["ceilings"].push_back({{"remedy", c.remedy}, {"step_s", c.step_s}, {"reason", c.reason}});
  json["turning_points"] = Json::array();
  for (const TurningPoint& t : a.turning_points)
    json["turning_points"].push_back({{"quantity", t.quantity},
                                      {"low", t.low},
                                      {"high", t.high},
                                      {"below", t.below},
                                      {"above", t.above}});
  json["notes"] = a.notes;
  json["stragglers"] = Json::array();
  for (const Straggler& s : a.stragglers)
    json["stragglers"].push_back(
        {{"rank", s.rank}, {"late_s", s.late_s}, {"step_s", s.step_s}, {"reason", s.reason}});
  return json.dump(1) + "\n";
}

Advice advice_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, "advice", read_advice);
}

}  // namespace linerate::doc
