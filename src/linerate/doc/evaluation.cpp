#include "linerate/doc/evaluation.hpp"

#include <fmt/format.h>

#include <array>

#include "linerate/core/file.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

constexpr std::string_view kEvaluationKind = "evaluation";
constexpr std::array<std::string_view, 4> kRoles = {"fp32", "16-bit", "repeat", "candidate"};
constexpr std::array<std::string_view, 2> kBudgets = {"steps", "time"};
constexpr std::array<std::string_view, 2> kModes = {kMeasured, kRehearsed};

template <std::size_t N>
std::size_t index_in(const JsonReader& reader, const std::array<std::string_view, N>& names) {
  const std::string text = reader.string();
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == text) return i;
  reader.fail(fmt::format("expected one of {}; found \"{}\"", fmt::join(names, ", "), text));
}

Json json_of_timed(const TimedRun& r) {
  return {{"strategy", r.strategy},
          {"role", std::string(name_of(r.role))},
          {"round_step_s", r.round_step_s},
          {"encode_s", r.encode_s},
          {"communication_s", r.communication_s},
          {"decode_s", r.decode_s},
          {"exposed_s", r.exposed_s},
          {"sent_bytes", r.sent_bytes},
          {"is_summable", r.is_summable},
          {"options", r.options}};
}

Json json_of_trained(const TrainedRun& r) {
  Json points = Json::array();
  for (const AccuracyPoint& p : r.points)
    points.push_back({{"step", p.step},
                      {"train_s", p.train_s},
                      {"test_loss", p.test_loss},
                      {"test_accuracy", p.test_accuracy}});
  return {{"strategy", r.strategy},
          {"role", std::string(name_of(r.role))},
          {"budget", std::string(name_of(r.budget))},
          {"seed", r.seed},
          {"learning_rate", r.learning_rate},
          {"steps", r.steps},
          {"points", std::move(points)},
          {"diverged", r.diverged}};
}

Json json_of_setup(const Setup& s) {
  Json json = {
      {"model", s.model},       {"input", s.input},
      {"data", s.data},         {"batch", s.batch},
      {"ranks", s.ranks},       {"transport", s.transport},
      {"network", s.network},   {"line_rate_bytes_per_s", json_of(s.line_rate_bytes_per_s)},
      {"mode", s.mode},         {"target_accuracy", json_of(s.target_accuracy)},
      {"timed", Json::array()}, {"trained", Json::array()},
      {"notes", s.notes}};
  for (const TimedRun& r : s.timed) json["timed"].push_back(json_of_timed(r));
  for (const TrainedRun& r : s.trained) json["trained"].push_back(json_of_trained(r));
  return json;
}

std::vector<std::string> strings(const JsonReader& reader) {
  std::vector<std::string> all;
  for (const JsonReader& one : reader.items()) all.push_back(one.string());
  return all;
}

double share(const JsonReader& reader) {
  const double value = reader.number();
  if (!(value >= 0 && value <= 1))
    reader.fail(fmt::format("expected a share from 0 to 1, found {}", value));
  return value;
}

/// A step takes some time: what is divided by it need not ask.
double duration(const JsonReader& reader) {
  const double value = reader.seconds();
  if (!(value > 0)) reader.fail(fmt::format("expected more than 0 s, found {}", value));
  return value;
}

TimedRun read_timed(const JsonReader& r) {
  TimedRun run;
  run.strategy = r.string("strategy");
  run.role = static_cast<Role>(index_in(r.at("role"), kRoles));
  for (const JsonReader& round : r.at("round_step_s").items())
    run.round_step_s.push_back(duration(round));
  if (run.round_step_s.empty())
    r.at("round_step_s").fail("expected the step of a round or more, found none");
  run.encode_s = r.seconds("encode_s");
  run.communication_s = r.seconds("communication_s");
  run.decode_s = r.seconds("decode_s");
  run.exposed_s = r.seconds("exposed_s");
  run.sent_bytes = r.at_least_zero("sent_bytes");
  run.is_summable = r.at("is_summable").boolean();
  run.options = strings(r.at("options"));
  return run;
}

AccuracyPoint read_point(const JsonReader& r) {
  return {r.integer_in("step", 0, INT64_MAX), r.seconds("train_s"), r.number("test_loss"),
          share(r.at("test_accuracy"))};
}

TrainedRun read_trained(const JsonReader& r) {
  TrainedRun run;
  run.strategy = r.string("strategy");
  run.role = static_cast<Role>(index_in(r.at("role"), kRoles));
  run.budget = static_cast<Budget>(index_in(r.at("budget"), kBudgets));
  run.seed = static_cast<std::uint64_t>(r.integer_in("seed", 0, INT64_MAX));
  run.learning_rate = r.positive("learning_rate");
  run.steps = r.integer_in("steps", 1, INT64_MAX);
  for (const JsonReader& point : r.at("points").items()) {
    run.points.push_back(read_point(point));
    if (const std::size_t n = run.points.size();
        n > 1 && run.points[n - 1].step <= run.points[n - 2].step)
      point.at("step").fail(fmt::format("expected more than {}, the step before; found {}",
                                        run.points[n - 2].step, run.points[n - 1].step));
  }
  run.diverged = r.string("diverged");
  if (run.points.empty() && run.diverged.empty())
    r.at("points").fail("expected a point at least of a run that did not diverge, found none");
  return run;
}

/// Rounds are compared with each other, so every run has as many.
void check_rounds(const Setup& s, const JsonReader& timed) {
  const std::vector<JsonReader> runs = timed.items();
  for (std::size_t i = 1; i < s.timed.size(); ++i)
    if (s.timed[i].round_step_s.size() != s.timed[0].round_step_s.size())
      runs[i]
          .at("round_step_s")
          .fail(fmt::format("expected {} rounds, as in the setup's first run; found {}",
                            s.timed[0].round_step_s.size(), s.timed[i].round_step_s.size()));
}

Setup read_setup(const JsonReader& r) {
  Setup s;
  s.model = r.string("model");
  s.input = r.string("input");
  s.data = r.string("data");
  s.batch = r.integer_in("batch", 0, INT64_MAX);
  s.ranks = static_cast<int>(r.integer_in("ranks", 1, INT32_MAX));
  s.transport = r.string("transport");
  s.network = r.string("network");
  if (!r.at("line_rate_bytes_per_s").value().is_null())
    s.line_rate_bytes_per_s = r.positive("line_rate_bytes_per_s");
  s.mode = kModes[index_in(r.at("mode"), kModes)];
  if (!r.at("target_accuracy").value().is_null())
    s.target_accuracy = share(r.at("target_accuracy"));
  for (const JsonReader& run : r.at("timed").items()) s.timed.push_back(read_timed(run));
  check_rounds(s, r.at("timed"));
  for (const JsonReader& run : r.at("trained").items()) s.trained.push_back(read_trained(run));
  s.notes = strings(r.at("notes"));
  return s;
}

}  // namespace

std::string_view name_of(Role role) { return kRoles[static_cast<std::size_t>(role)]; }
std::string_view name_of(Budget budget) { return kBudgets[static_cast<std::size_t>(budget)]; }

std::string title_of(const Setup& s) {
  std::string title = s.model;
  if (!s.input.empty()) title += " " + s.input;
  if (!s.data.empty()) title += " " + s.data;
  if (s.batch > 0) title += fmt::format(", batch {}", s.batch);
  return title + fmt::format(", {} ranks, {}{}", s.ranks, s.network,
                             s.mode == kRehearsed ? ", rehearsed" : "");
}

std::string to_json(const Evaluation& all) {
  Json json = new_document(kEvaluationKind);
  json["setups"] = Json::array();
  for (const Setup& s : all.setups) json["setups"].push_back(json_of_setup(s));
  return json.dump(1) + "\n";
}

Evaluation evaluation_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, kEvaluationKind, [](const JsonReader& r) {
    Evaluation all;
    for (const JsonReader& s : r.at("setups").items()) all.setups.push_back(read_setup(s));
    return all;
  });
}

Evaluation load_evaluation(const std::filesystem::path& path) {
  return evaluation_from_json(read_file(path), path.string());
}

void save(const Evaluation& all, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(all));
}

}  // namespace linerate::doc
