// Compares two Timelines quantity by quantity. tabulate() makes a table of each: a row a step, a
// column a task. A column becomes one number, the middle over its steps. Steps of several kinds,
// such as K-FAC's or a compressor's phases, are not mixed. Each kind has a middle of its own, and
// the kinds are weighted as often as they were measured.
//
// An example: three measured steps of one kind and one of another. The predicted kinds take 100 and
// 140 ms. So the predicted step is .75 * 100 + .25 * 140 = 110 ms, however often the prediction
// shows each kind.
//
// Every number has its noise next to it, which is the difference between two measurements of the
// same.
#include "linerate/compare/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ranges>
#include <set>
#include <span>

#include "linerate/compare/step_table.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::compare {
namespace {

constexpr const char* kPredicted = "predicted";  // doc::Timeline::mode of a simulation
constexpr std::size_t kFewestForHalves = 4;

using Rows = std::function<bool(std::size_t)>;
using Middle = double(std::span<const double>);

/// One side of the comparison.
struct Side {
  StepTable table;
  std::vector<StepKind> kinds{};       // of the table's steps
  std::map<StepKind, double> share{};  // of each kind among the measured steps
  Middle* middle = median;

  std::optional<double> value(const Column& column, const Rows& chosen = {}) const;
};

/// The middle of the chosen steps, by kind and weighted. A step without the task counts as 0 if the
/// task occurs in other steps, since sums over steps are compared. Absent if the task occurs in no
/// kind of step that was measured.
std::optional<double> Side::value(const Column& column, const Rows& chosen) const {
  std::map<StepKind, std::vector<double>> values;
  std::set<StepKind> occurs;
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (chosen && !chosen(i)) continue;
    if (!std::isnan(column[i])) occurs.insert(kinds[i]);
    values[kinds[i]].push_back(std::isnan(column[i]) ? 0 : column[i]);
  }
  bool any = false;
  double sum = 0, weight = 0;
  for (const auto& [kind, v] : values) {
    const auto known = share.find(kind);
    // A side without names of variants (an import, a plain simulation) has one kind of weight 1.
    const double w = known != share.end() ? known->second : values.size() == 1 ? 1 : 0;
    sum += w * middle(v), weight += w;
    any = any || (w > 0 && occurs.contains(kind));
  }
  return any ? std::optional(sum / weight) : std::nullopt;
}

/// Sets the kind of each step: its variant, and the variant before it, whose messages may reach
/// into it. If one side lacks such a pair, the variant alone counts.
void set_kinds(const std::vector<Side*>& sides) {
  std::map<StepKind, std::set<const Side*>> seen;
  for (const Side* side : sides)
    for (const StepKind& step : side->table.steps) seen[step].insert(side);
  for (Side* side : sides)
    for (const StepKind& step : side->table.steps)
      side->kinds.push_back(seen[step].size() == sides.size() ? step : StepKind{step.variant, ""});
}

double relative_difference(double a, double b) { return b > 0 ? std::abs(a / b - 1) : 0; }

/// The largest difference between interleaved halves, at several block lengths. With 8 steps,
/// blocks of 1 compare the steps 0, 2, 4, 6 with 1, 3, 5, 7. Blocks of 2 compare 0, 1, 4, 5 with 2,
/// 3, 6, 7. A machine that slows down step by step shows little with blocks of 1 and more with
/// longer ones.
std::optional<double> noise_of_halves(const Side& side, const Column& column) {
  const std::size_t n = column.size();
  std::optional<double> noise;
  for (const std::size_t block : {1, 2, 4}) {
    if (n < kFewestForHalves * block) break;
    const auto a = side.value(column, [&](std::size_t i) { return i / block % 2 == 0; });
    const auto b = side.value(column, [&](std::size_t i) { return i / block % 2 == 1; });
    if (a && b && *a > 0 && *b > 0)
      noise = std::max(noise.value_or(0), relative_difference(*a, *b));
  }
  return noise;
}

// The first parameter of a task, and how many more there are: "conv1.weight +3". The layer's name
// without parameters.
std::string subject(const TaskKey& key) {
  const auto more = std::count(key.set.begin(), key.set.end(), '\n');
  const std::string first = key.set.substr(0, key.set.find('\n'));
  if (key.set.empty()) return key.name;
  return more > 0 ? first + " +" + std::to_string(more) : first;
}

/// Sentences on what makes the numbers of the two incomparable. Empty fields are unknown and count
/// as equal.
std::vector<std::string> differences(const doc::Timeline& predicted,
                                     const doc::Timeline& measured) {
  std::vector<std::string> notes;
  if (predicted.mode != kPredicted && measured.mode == kPredicted)
    notes.push_back("the first Timeline is a run and the second a prediction; swap them");
  const auto compare_texts = [&](const char* what, const std::string& a, const std::string& b) {
    if (!a.empty() && !b.empty() && a != b)
      notes.push_back(fmt::format("{} differs: {} against {}", what, a, b));
  };
  compare_texts("the workload", predicted.workload, measured.workload);
  compare_texts("the strategy", predicted.strategy, measured.strategy);
  if (predicted.ranks != measured.ranks)
    notes.push_back(
        fmt::format("the rank count differs: {} against {}", predicted.ranks, measured.ranks));
  const auto& slowed = predicted.computation_slowed;
  if (slowed && measured.computation_slowed && *slowed != *measured.computation_slowed)
    notes.push_back(
        fmt::format("communication slows computation only in the {} one; predict a rehearsal from "
                    "a Cluster without contention",
                    *slowed ? "first" : "second"));
  return notes;
}

class Comparer {
 public:
  Comparer(const doc::Timeline& predicted, const doc::Timeline& measured,
           const CompareOptions& options) {
    const auto table_of_run = [&options](const doc::Timeline& run) {
      return tabulate(run, options.warm_up.value_or(default_warm_up(run)));
    };
    measured_.table = table_of_run(measured);
    // Nothing warms up in virtual time, but a first step with its own variant is as untypical
    // there. Two compared runs both warm up.
    const bool is_run = predicted.mode != kPredicted;
    predicted_.table = is_run ? table_of_run(predicted) : tabulate(predicted, 0);
    // What a simulated step has of the one before the last is no noise.
    if (!is_run) predicted_.middle = mean;
    if (options.noise) other_.emplace().table = table_of_run(*options.noise);
    std::vector<Side*> sides{&predicted_, &measured_};
    if (other_) sides.push_back(&*other_);
    set_kinds(sides);
    std::map<StepKind, double> share;
    for (const StepKind& kind : measured_.kinds)
      share[kind] += 1.0 / static_cast<double>(measured_.kinds.size());
    for (Side* side : sides) side->share = share;
  }

  Comparison run() {
    Comparison c;
    c.predicted_steps = static_cast<int>(predicted_.table.step_s.size());
    c.measured_steps = static_cast<int>(measured_.table.step_s.size());
    c.dropped_steps = measured_.table.dropped;
    if (other_)
      c.noise_source = "a second run";
    else if (measured_.table.step_s.size() >= kFewestForHalves)
      c.noise_source = "halves of the measured run";
    c.step = row("step", &predicted_.table.step_s, &measured_.table.step_s,
                 other_ ? &other_->table.step_s : nullptr);
    c.exposed = row("exposed communication", &predicted_.table.exposed_s,
                    &measured_.table.exposed_s, other_ ? &other_->table.exposed_s : nullptr);
    add_kinds(c);
    join_tasks(c);
    return c;
  }

 private:
  // One quantity of both sides, with its noise. Null: the side does not have it.
  ComparedRow row(std::string what, const Column* predicted, const Column* measured,
                  const Column* other) const {
    ComparedRow r;
    r.what = std::move(what);
    if (predicted) r.predicted_s = predicted_.value(*predicted);
    if (!measured) return r;
    r.measured_s = measured_.value(*measured);
    if (!other_)
      r.noise = noise_of_halves(measured_, *measured);
    else if (other && r.measured_s)
      if (const auto again = other_->value(*other))
        r.noise = relative_difference(*again, *r.measured_s);
    return r;
  }

  template <typename Map, typename Key>
  static const Column* find(const Map& map, const Key& key) {
    const auto at = map.find(key);
    return at == map.end() ? nullptr : &at->second;
  }

  void add_kinds(Comparison& c) const {
    for (std::size_t k = 0; k < doc::kTaskKindNames.size(); ++k) {
      const auto kind = static_cast<doc::TaskKind>(k);
      const Column* p = find(predicted_.table.kinds, kind);
      const Column* m = find(measured_.table.kinds, kind);
      if (p || m)
        c.kinds.push_back(row(std::string(name_of(kind)), p, m,
                              other_ ? find(other_->table.kinds, kind) : nullptr));
    }
  }

  ComparedRow task_row(const TaskKey& key, const Column* p, const Column* m) const {
    ComparedRow r = row(subject(key), p, m, m && other_ ? find(other_->table.tasks, key) : nullptr);
    r.kind = name_of(key.kind), r.phase = key.phase;
    return r;
  }

  // Joins tasks of the two sides, each at most once. Tasks about the same parameters are partners.
  // A trace of others may name the layer alone, so names decide next. The rest has no partner:
  // another bucket layout, or a task that one side does not have.
  void join_tasks(Comparison& c) const {
    // First on the set of parameters, then, if a side names only the layer, on the name.
    const auto by_set = [](TaskKey k) {
      if (!k.set.empty()) k.name.clear();
      return k;
    };
    const auto by_name = [](TaskKey k) {
      k.set.clear();
      return k;
    };
    std::map<TaskKey, const TaskKey*> partners;  // a key without a set comes before those with one
    for (const auto& [key, column] : measured_.table.tasks) {
      partners.emplace(by_set(key), &key);
      if (!key.name.empty()) partners.emplace(by_name(key), &key);
    }
    std::set<TaskKey> taken;
    for (const auto& [key, column] : predicted_.table.tasks) {
      auto partner = partners.find(by_set(key));
      if (partner == partners.end() && !key.name.empty()) partner = partners.find(by_name(key));
      if (partner != partners.end() && taken.insert(*partner->second).second) {
        c.tasks.push_back(
            task_row(*partner->second, &column, &measured_.table.tasks.at(*partner->second)));
      } else if (predicted_.value(column)) {  // else of steps that were not measured
        c.only_predicted.push_back(task_row(key, &column, nullptr));
      }
    }
    for (const auto& [key, column] : measured_.table.tasks)
      if (!taken.contains(key)) c.only_measured.push_back(task_row(key, nullptr, &column));
  }

  Side predicted_, measured_;
  std::optional<Side> other_;
};

constexpr std::size_t kMostListed = 8;

std::string time_or(const std::optional<double>& seconds) {
  return seconds ? format_time(*seconds) : "-";
}

// "all-reduce conv1.weight +3 [1]": kind, subject, and the phase if it is not the first.
std::string title(const ComparedRow& r) {
  if (r.kind.empty()) return r.what;
  return fmt::format("{} {}{}", r.kind, r.what, r.phase > 0 ? fmt::format(" [{}]", r.phase) : "");
}

std::string table_of(const std::string& head, const std::vector<ComparedRow>& rows) {
  TextRows cells;
  for (const ComparedRow& r : rows)
    cells.push_back({title(r), time_or(r.predicted_s), time_or(r.measured_s),
                     r.error() ? signed_percent(*r.error()) : "-",
                     r.noise ? format_percent(*r.noise) : "-"});
  return text_table({head, ">predicted", ">measured", ">error", ">noise"}, cells);
}

// Lists the first of the rows without a partner, and counts the others.
void add_without_partner(std::string& text, const std::string& side,
                         const std::vector<ComparedRow>& rows) {
  if (rows.empty()) return;
  text += fmt::format("tasks that are only {}, with their times ({}):\n", side, rows.size());
  for (const ComparedRow& r : rows | std::views::take(kMostListed))
    text +=
        fmt::format("  {}  {}\n", title(r), time_or(r.predicted_s ? r.predicted_s : r.measured_s));
  if (rows.size() > kMostListed)
    text += fmt::format("  ... and {} more (--json lists all)\n", rows.size() - kMostListed);
}

doc::Json json_of_row(const ComparedRow& r) {
  doc::Json json;
  if (!r.kind.empty()) json["kind"] = r.kind;
  json["what"] = r.what;
  if (!r.kind.empty()) json["phase"] = r.phase;
  json["predicted_s"] = doc::json_of(r.predicted_s);
  json["measured_s"] = doc::json_of(r.measured_s);
  json["relative_error"] = doc::json_of(r.error());
  json["noise"] = doc::json_of(r.noise);
  return json;
}

doc::Json json_of_rows(const std::vector<ComparedRow>& rows) {
  doc::Json json = doc::Json::array();
  for (const ComparedRow& r : rows) json.push_back(json_of_row(r));
  return json;
}

}  // namespace

std::optional<double> ComparedRow::error() const {
  if (!predicted_s || !measured_s || !(*measured_s > 0)) return std::nullopt;
  return *predicted_s / *measured_s - 1;
}

Comparison compare(const doc::Timeline& predicted, const doc::Timeline& measured,
                   const CompareOptions& options) {
  validate(predicted, "the predicted Timeline");
  validate(measured, "the measured Timeline");
  if (options.noise) validate(*options.noise, "the Timeline of the noise");
  Comparison comparison = Comparer(predicted, measured, options).run();
  comparison.notes = differences(predicted, measured);
  return comparison;
}

// A Comparison as text and as JSON.

std::string signed_percent(double error) {
  return (error >= 0.0005 ? "+" : "") + format_percent(error);
}

std::string to_text(const Comparison& c, bool with_tasks) {
  std::vector<ComparedRow> rows = {c.step};
  if (c.exposed.predicted_s || c.exposed.measured_s) rows.push_back(c.exposed);
  rows.insert(rows.end(), c.kinds.begin(), c.kinds.end());
  std::string text = table_of("median over steps", rows);
  if (with_tasks) text += table_of(fmt::format("{} tasks with a partner", c.tasks.size()), c.tasks);
  add_without_partner(text, "predicted", c.only_predicted);
  add_without_partner(text, "measured", c.only_measured);
  text += fmt::format("{} measured steps, {} dropped as warm-up; {} predicted; noise: {}\n",
                      c.measured_steps, c.dropped_steps, c.predicted_steps,
                      c.noise_source.value_or("unknown, it takes four steps or --noise"));
  for (const std::string& note : c.notes) text += "note: " + note + "\n";
  return text;
}

std::string to_json(const Comparison& c) {
  const doc::Json json = {{"step", json_of_row(c.step)},
                          {"exposed_communication", json_of_row(c.exposed)},
                          {"kinds", json_of_rows(c.kinds)},
                          {"tasks", json_of_rows(c.tasks)},
                          {"only_predicted", json_of_rows(c.only_predicted)},
                          {"only_measured", json_of_rows(c.only_measured)},
                          {"measured_steps", c.measured_steps},
                          {"dropped_steps", c.dropped_steps},
                          {"predicted_steps", c.predicted_steps},
                          {"noise_source", c.noise_source ? doc::Json(*c.noise_source) : nullptr},
                          {"notes", c.notes}};
  return json.dump(2);
}

}  // namespace linerate::compare
