#include "linerate/cli/advise_print.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/text.hpp"

namespace linerate::cli {
namespace {

constexpr double kBitsPerByte = 8;

std::string time_of(const std::optional<doc::Interval>& i) {
  return i ? format_time(i->value) : "-";
}

std::string interval_of(const std::optional<doc::Interval>& i) {
  if (!i || !i->low || !i->high) return "n/a";
  return format_time(*i->low) + " .. " + format_time(*i->high);
}

std::string steps_of(const doc::Candidate& c) {
  return c.steps_to_target ? fmt::format("x {:.3g}", c.steps_to_target->value) : "";
}

std::string candidates_of(const doc::Advice& a) {
  std::size_t name = 8;
  for (const doc::Candidate& c : a.candidates) name = std::max(name, c.strategy.size());
  std::string out = fmt::format("  {:<{}}  {:>9}  {:>22}  {:>6}  {:>9}\n", "strategy", name, "step",
                                "interval", "steps", "memory");
  doc::Standing standing = doc::Standing::ranked;
  for (const doc::Candidate& c : a.candidates) {
    if (c.standing != standing) out += fmt::format("{}:\n", name_of(c.standing));
    standing = c.standing;
    const auto& time = c.standing == doc::Standing::ranked ? c.target_s : c.step_s;
    out += fmt::format("{} {:<{}}  {:>9}  {:>22}  {:>6}  {:>9}\n",
                       c.strategy == a.current ? "*" : " ", c.strategy, name, time_of(c.step_s),
                       interval_of(time), steps_of(c), format_size(c.memory_bytes));
    out += fmt::format("      {}\n", c.reason);
  }
  return out + "  * in use\n";
}

std::string turning_of(const doc::TurningPoint& t) {
  const bool bandwidth = t.quantity == "bandwidth_bit_per_s";
  const auto text = [&](double v) {
    return bandwidth ? format_bit_rate(v / kBitsPerByte) : fmt::format("{:.3g}", v);
  };
  if (bandwidth)
    return fmt::format("  bandwidth between {} and {}: below {}; above {}\n", text(t.low),
                       text(t.high), t.below, t.above);
  return fmt::format("  ratio between {} and {}: from there on {} has a shorter step than {}\n",
                     text(t.low), text(t.high), t.above, t.below);
}

}  // namespace

std::string text_of(const doc::Advice& a) {
  std::string out = a.sentence + "\n\n";
  out += fmt::format("{} on {} ranks", a.workload.empty() ? "workload" : a.workload, a.ranks);
  if (a.bandwidth_bit_per_s > 0)
    out += fmt::format(" at {}", format_bit_rate(a.bandwidth_bit_per_s / kBitsPerByte));
  out += fmt::format(", one rank alone {}\n", format_time(a.one_rank_step_s));
  out += candidates_of(a);
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
