// A Comparison as text and as JSON.
#include <fmt/format.h>

#include "linerate/compare/comparison.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::compare {
namespace {

constexpr std::size_t kMostListed = 8;

std::string time_or(const std::optional<double>& seconds) {
  return seconds ? format_time(*seconds) : "-";
}

std::string percent(const std::optional<double>& share, bool with_sign) {
  if (!share) return "-";
  return (with_sign && *share >= 0.0005 ? "+" : "") + format_percent(*share);
}

// "all-reduce conv1.weight +3 [1]": kind, subject, and the phase if it is not the first.
std::string title(const ComparedRow& r) {
  if (r.kind.empty()) return r.what;
  return fmt::format("{} {}{}", r.kind, r.what, r.phase > 0 ? fmt::format(" [{}]", r.phase) : "");
}

std::string table_of(const std::string& head, const std::vector<ComparedRow>& rows) {
  std::vector<std::vector<std::string>> cells;
  for (const ComparedRow& r : rows)
    cells.push_back({title(r), time_or(r.predicted_s), time_or(r.measured_s),
                     percent(r.error(), true), percent(r.noise, false)});
  return text_table(
      {{head}, {"predicted", true}, {"measured", true}, {"error", true}, {"noise", true}}, cells);
}

// Lists the first of the rows without a partner, and counts the others.
void add_without_partner(std::string& text, const std::string& side,
                         const std::vector<ComparedRow>& rows) {
  if (rows.empty()) return;
  text += fmt::format("tasks that are only {}, with their times ({}):\n", side, rows.size());
  for (std::size_t i = 0; i < std::min(rows.size(), kMostListed); ++i)
    text += fmt::format("  {}  {}\n", title(rows[i]),
                        time_or(rows[i].predicted_s ? rows[i].predicted_s : rows[i].measured_s));
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
