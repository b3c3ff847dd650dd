#include "linerate/cli/advise_print.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "linerate/cli/time_range.hpp"
#include "linerate/core/text.hpp"

namespace linerate::cli {
namespace {

constexpr double kBitsPerByte = 8;

std::string time_of(const std::optional<doc::Interval>& i) {
  return i ? format_time(i->value) : "-";
}

std::string interval_of(const std::optional<doc::Interval>& i) {
  return i && i->low && i->high ? time_range(*i->low, *i->high) : "n/a";
}

std::vector<const doc::Candidate*> shown(const doc::Advice& a, bool all) {
  std::vector<const doc::Candidate*> list;
  // The best setting of a family speaks for the others.
  std::set<std::pair<doc::Standing, std::string>> families;
  for (const doc::Candidate& c : a.candidates) {
    const bool first = families.emplace(c.standing, c.family).second;
    if (all || first || c.strategy == a.current || c.strategy == a.best) list.push_back(&c);
  }
  return list;
}

// The columns of the time to target, where any strategy has one of its own.
std::string target_of(const doc::Candidate& c) {
  if (!c.steps_to_target) return fmt::format("  {:>7}  {:>9}  {:>24}", "", "", "");
  return fmt::format("  x {:<5.3g}  {:>9}  {:>24}", c.steps_to_target->value, time_of(c.target_s),
                     interval_of(c.target_s));
}

std::string candidates_of(const doc::Advice& a, bool all) {
  const std::vector<const doc::Candidate*> list = shown(a, all);
  std::size_t name = 8;
  bool weighted = false, all_train = true;
  for (const doc::Candidate* c : list) {
    name = std::max(name, c->strategy.size());
    weighted = weighted || c->steps_to_target;
    all_train = all_train && c->trains;
  }
  std::string out = fmt::format(
      "  {:<{}}  {:>9}  {:>24}{}  {:>9}{}\n", "strategy", name, "step", "90 % interval",
      weighted ? fmt::format("  {:>7}  {:>9}  {:>24}", "steps", "to target", "90 % interval") : "",
      "memory", all_train ? "" : "  trains");
  doc::Standing standing = doc::Standing::ranked;
  for (const doc::Candidate* c : list) {
    if (c->standing != standing) out += fmt::format("{}:\n", name_of(c->standing));
    standing = c->standing;
    out +=
        fmt::format("{} {:<{}}  {:>9}  {:>24}{}  {:>9}{}\n", c->strategy == a.current ? "*" : " ",
                    c->strategy, name, time_of(c->step_s), interval_of(c->step_s),
                    weighted ? target_of(*c) : "", format_size(c->memory_bytes),
                    all_train   ? ""
                    : c->trains ? "  yes"
                                : "  no");
    out += fmt::format("      {}\n", c->reason);
  }
  out += "  * in use\n";
  if (weighted) out += "  to target: step x steps against an uncompressed run, which takes x 1\n";
  if (!all_train) out += "  trains: no where the prediction alone is to be had (simulated only)\n";
  if (const std::size_t folded = a.candidates.size() - list.size(); folded > 0)
    out += fmt::format("  ... and {} more settings of these, none better (--all lists them)\n",
                       folded);
  return out;
}

// Brackets of 1 % need four digits to be told apart.
std::string bracket_of(const doc::TurningPoint& t, bool bandwidth) {
  const double unit = !bandwidth ? 1 : t.high >= 1e9 ? 1e9 : 1e6;
  return fmt::format("between {:.4g} and {:.4g}{}", t.low / unit, t.high / unit,
                     !bandwidth      ? ""
                     : t.high >= 1e9 ? " Gbit/s"
                                     : " Mbit/s");
}

std::string turning_of(const doc::TurningPoint& t) {
  const bool bandwidth = t.quantity == "bandwidth_bit_per_s";
  if (bandwidth)
    return fmt::format("  bandwidth {}: below {}; above {}\n", bracket_of(t, bandwidth), t.below,
                       t.above);
  return fmt::format("  ratio {}: from there on {} has a shorter step than {}\n",
                     bracket_of(t, bandwidth), t.above, t.below);
}

}  // namespace

std::string text_of(const doc::Advice& a, bool all) {
  std::string out = a.sentence + "\n\n";
  out += fmt::format("{} on {} ranks", a.workload.empty() ? "workload" : a.workload, a.ranks);
  if (a.bandwidth_bit_per_s > 0)
    out += fmt::format(" at {}", format_bit_rate(a.bandwidth_bit_per_s / kBitsPerByte));
  out += fmt::format(", one rank alone {}\n", format_time(a.one_rank_step_s));
  out += candidates_of(a, all);
  out += "\nCeiling of each remedy, from " + a.current + "\n";
  for (const doc::Ceiling& c : a.ceilings)
    out += fmt::format("  {:<20}  {:>9}  {}\n", c.remedy, format_time(c.step_s), c.reason);
  out += "\nWhere the answer changes\n";
  for (const doc::TurningPoint& t : a.turning_points) out += turning_of(t);
  if (a.turning_points.empty()) out += "  nowhere within a factor of 1000 of this bandwidth\n";
  for (const std::string& note : a.notes) out += "note: " + note + "\n";
  return out;
}

}  // namespace linerate::cli
