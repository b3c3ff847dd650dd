// An Advice for a terminal: the sentences first, as they are the answer. Then come the candidates
// with their numbers, and at the end what would change the answer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/core/units.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

std::string time_of(const std::optional<doc::Bounded>& i) {
  return i ? format_time(i->value) : "-";
}

// A closed form has no interval: "n/a" says so, "0 wide" would be a lie.
std::string interval_of(const std::optional<doc::Bounded>& i) {
  return i && i->has_interval() ? time_range(*i->low, *i->high) : "n/a";
}

// The optional columns that this advice has.
struct Extras {
  bool weighted = false;  // by steps to target
  bool trains = false;    // some cannot be trained
};

// Steps to target are shown of those that have them; for the others the step is what counts.
std::vector<std::string> row_of(const doc::Candidate& c, const doc::Advice& a,
                                const Extras& extras) {
  std::vector<std::string> row = {(c.strategy == a.current ? "* " : "  ") + a.named(c.strategy),
                                  time_of(c.step_s), interval_of(c.step_s)};
  if (extras.weighted && c.steps_to_target)
    row.insert(row.end(), {fmt::format("x {:.3g}", c.steps_to_target->value), time_of(c.target_s),
                           interval_of(c.target_s)});
  else if (extras.weighted)
    row.insert(row.end(), {"", "", ""});
  row.push_back(format_size(c.memory_bytes));
  if (extras.trains) row.push_back(c.trains ? "yes" : "no");
  return row;
}

// A column that would be empty for all is left out: a terminal has room for the reason under each
// line, not for more.
std::vector<std::string> candidate_lines(const std::vector<const doc::Candidate*>& list,
                                         const doc::Advice& a, const Extras& extras) {
  std::vector<std::string> columns = {"  strategy", ">step", ">90 % interval"};
  if (extras.weighted) columns.insert(columns.end(), {"steps", ">to target", ">90 % interval"});
  columns.push_back(">memory");
  if (extras.trains) columns.push_back("trains");
  std::vector<std::vector<std::string>> rows;
  for (const doc::Candidate* c : list) rows.push_back(row_of(*c, a, extras));
  return table_lines(columns, rows);
}

// Candidates come by standing, the ranked first. A heading stands wherever the standing changes.
std::string candidates_of(const doc::Advice& a, bool all) {
  const std::vector<const doc::Candidate*> list = shown_candidates(a, all);
  Extras extras;
  for (const doc::Candidate* c : list) {
    extras.weighted = extras.weighted || c->steps_to_target;
    extras.trains = extras.trains || !c->trains;
  }
  const std::vector<std::string> lines = candidate_lines(list, a, extras);
  std::string out = lines.front() + "\n";
  doc::Standing standing = doc::Standing::ranked;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i]->standing != standing) out += fmt::format("{}:\n", name_of(list[i]->standing));
    standing = list[i]->standing;
    out += fmt::format("{}\n      {}\n", lines[i + 1], list[i]->reason);
  }
  out +=
      "  * in use; exposed: communication that no computation covers; memory: what the exchange "
      "needs on a rank\n";
  if (extras.weighted)
    out += "  to target: step x steps relative to an uncompressed run, which takes x 1\n";
  if (extras.trains)
    out += "  trains: no if linerate train refuses the strategy, which is then only simulated\n";
  if (const std::size_t folded = a.candidates.size() - list.size(); folded > 0)
    out += fmt::format("  ... and {} more settings of these, none better (--all lists them)\n",
                       folded);
  return out;
}

// A line a late rank: the step without it is as if this rank and those above it were as fast as the
// Workload says.
std::string late_ranks_of(const doc::Advice& a) {
  if (a.stragglers.empty()) return "";
  std::vector<std::vector<std::string>> rows;
  for (const doc::Straggler& s : a.stragglers)
    rows.push_back(
        {fmt::format("rank {}", s.rank), format_time(s.late_s), format_time(s.step_s), s.reason});
  return "\nWho holds the others up, with " + a.named(a.current) + "\n" +
         text_table({"rank", ">late", ">step without", "reason"}, rows, "  ");
}

// The step that a remedy would give at its very best: what cannot pay even then need not be tried.
std::string ceilings_of(const doc::Advice& a) {
  std::vector<std::vector<std::string>> rows;
  for (const doc::Ceiling& c : a.ceilings)
    rows.push_back({c.remedy, format_time(c.step_s.value), interval_of(c.step_s), c.reason});
  return text_table({"remedy", ">step", ">90 % interval", "reason"}, rows, "  ");
}

// Intervals of fitted costs may be narrower than the three digits that times have elsewhere. Both
// ends would print alike and look like a typing error.

constexpr int kUsualDigits = 3, kMostDigits = 7;

// With so many digits in all. Of 128.336 ms three stand before the point: five digits are 128.34.
std::string with_digits(double seconds, const std::string& unit, int digits) {
  const double value = seconds / parse_time("1" + unit).value;
  const int whole = value >= 1 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  return fmt::format("{:.{}f} {}", value, std::max(0, digits - whole), unit);
}

}  // namespace

std::vector<std::string> paragraphs_of(const doc::Advice& a) {
  std::vector<std::string> all;
  for (const std::string* text : {&a.sentence, &a.beyond, &a.present})
    if (!text->empty()) all.push_back(*text);
  return all;
}

// "between 1.006 and 1.012 Gbit/s", in the unit that fits the upper end.
std::vector<std::string> turning_points_of(const doc::Advice& a, std::string_view sentence) {
  constexpr double kNarrow = 1.05;  // two numbers of three digits that say the same
  std::vector<std::string> all;
  for (const doc::TurningPoint& t : a.turning_points) {
    if (!t.of_bandwidth()) continue;
    const bool giga = t.high >= kBitsPerGbit;
    const double unit = giga ? kBitsPerGbit : kBitsPerMbit;
    const std::string range =
        t.high <= kNarrow * t.low
            ? fmt::format("about {:.3g}", std::sqrt(t.low * t.high) / unit)
            : fmt::format("between {:.3g} and {:.3g}", t.low / unit, t.high / unit);
    all.push_back(fmt::format(fmt::runtime(sentence), range + (giga ? " Gbit/s" : " Mbit/s"),
                              a.named(t.below), a.named(t.above)));
  }
  return all;
}

std::vector<const doc::Candidate*> shown_candidates(const doc::Advice& a, bool all) {
  std::vector<const doc::Candidate*> list;
  // The best setting of a family stands for the others.
  std::set<std::pair<doc::Standing, std::string>> families;
  for (const doc::Candidate& c : a.candidates) {
    const bool first = c.family.empty() || families.emplace(c.standing, c.family).second;
    if (all || first || c.strategy == a.current || c.strategy == a.best) list.push_back(&c);
  }
  return list;
}

std::string to_text(const doc::Advice& a, bool all) {
  std::string out;
  for (const std::string& line : paragraphs_of(a)) out += line + "\n";
  out += "\n";
  out += fmt::format("{} on {} ranks", a.workload.empty() ? "workload" : a.workload, a.ranks);
  if (a.bandwidth_bit_per_s > 0)
    out += fmt::format(" at {}", format_bit_rate(a.bandwidth_bit_per_s / kBitsPerByte));
  out += fmt::format(", one rank alone {}\n", format_time(a.one_rank_step_s));
  out += candidates_of(a, all);
  out += late_ranks_of(a);
  if (!a.ceilings.empty())
    out += "\nThe most that each remedy could gain, with " + a.named(a.current) + "\n" +
           ceilings_of(a);
  out += "\nWhere the answer changes\n";
  const std::vector<std::string> turns =
      turning_points_of(a, "  bandwidth of {}: below it {}, above it {}\n");
  for (const std::string& turn : turns) out += turn;
  if (turns.empty()) out += "  nowhere within a factor of 1000 of this bandwidth\n";
  for (const std::string& note : a.notes) out += "note: " + note + "\n";
  return out;
}

// Digits are added one at a time until the ends differ. Beyond seven a difference is rounding, not
// information.
std::string time_range(double low_s, double high_s) {
  std::string low = format_time(low_s), high = format_time(high_s);
  const std::string unit = high.substr(high.find(' ') + 1);
  for (int digits = kUsualDigits + 1; low == high && low_s < high_s && digits <= kMostDigits;
       ++digits) {
    low = with_digits(low_s, unit, digits);
    high = with_digits(high_s, unit, digits);
  }
  return low + " .. " + high;
}

}  // namespace linerate::report
