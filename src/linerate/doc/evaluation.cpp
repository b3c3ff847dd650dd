// The JSON of an Evaluation (fields.hpp). Its checks make sure that others may divide by steps and
// compare rounds with each other. The last point of a training is its end.
#include "linerate/doc/evaluation.hpp"

#include <fmt/format.h>

#include <array>

#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/fields.hpp"

namespace linerate::doc {
namespace {

constexpr DocumentKind kEvaluationDocument{"evaluation"};
constexpr std::array<std::string_view, 4> kRoles = {"fp32", "16-bit", "repeat", "candidate"};
constexpr std::array<std::string_view, 2> kBudgets = {"steps", "time"};

struct Mode {
  std::string_view read(const JsonReader& r) const {
    constexpr std::array<std::string_view, 2> kModes = {kMeasured, kRehearsed};
    return kModes[index_in(r, kModes)];
  }
};

double share(const JsonReader& r) {
  const double value = r.number();
  if (!(value >= 0 && value <= 1))
    r.fail(fmt::format("expected a share from 0 to 1, found {}", value));
  return value;
}

/// A step takes more than 0 s, since others may divide by it.
double duration(const JsonReader& r) {
  const double value = seconds(r);
  if (!(value > 0)) r.fail(fmt::format("expected more than 0 s, found {}", value));
  return value;
}

void check_some_round(const JsonReader& r, const TimedRun& run) {
  if (run.round_step_s.empty())
    r.at("round_step_s").fail("expected the step of a round or more, found none");
}

void check_points(const JsonReader& r, const TrainedRun& run) {
  for (std::size_t i = 1; i < run.points.size(); ++i)
    if (run.points[i].step <= run.points[i - 1].step)
      r.at("points", i, "step")
          .fail(fmt::format("expected more than {}, the step before; found {}",
                            run.points[i - 1].step, run.points[i].step));
  if (run.points.empty() && run.diverged.empty())
    r.at("points").fail("expected a point at least of a run that did not diverge, found none");
}

/// Rounds are compared with each other, so every run of a setup has the same number.
void check_rounds(const JsonReader& r, const Setup& s) {
  for (std::size_t i = 1; i < s.timed.size(); ++i)
    if (s.timed[i].round_step_s.size() != s.timed[0].round_step_s.size())
      r.at("timed", i, "round_step_s")
          .fail(fmt::format("expected {} rounds, as in the setup's first run; found {}",
                            s.timed[0].round_step_s.size(), s.timed[i].round_step_s.size()));
}

}  // namespace

void fields(auto& v, Is<TimedRun> auto& run) {
  v.required("strategy", run.strategy);
  v.required("role", run.role, kRoles);
  v.required("round_step_s", run.round_step_s, duration);
  v.hold(check_some_round, run);
  v.required("encode_s", run.encode_s, seconds);
  v.required("communication_s", run.communication_s, seconds);
  v.required("decode_s", run.decode_s, seconds);
  v.required("exposed_s", run.exposed_s, seconds);
  v.required("sent_bytes", run.sent_bytes, at_least_zero);
  v.required("is_summable", run.is_summable);
  v.required("options", run.options);
}

void fields(auto& v, Is<AccuracyPoint> auto& p) {
  v.required("step", p.step, Range{0, INT64_MAX});
  v.required("train_s", p.train_s, seconds);
  v.required("test_loss", p.test_loss);
  v.required("test_accuracy", p.test_accuracy, share);
}

void fields(auto& v, Is<TrainedRun> auto& run) {
  v.required("strategy", run.strategy);
  v.required("role", run.role, kRoles);
  v.required("budget", run.budget, kBudgets);
  v.required("seed", run.seed, Range{0, INT64_MAX});
  v.required("learning_rate", run.learning_rate, positive);
  v.required("steps", run.steps, Range{1, INT64_MAX});
  v.required("points", run.points);
  v.required("diverged", run.diverged);
  v.hold(check_points, run);
}

void fields(auto& v, Is<Setup> auto& s) {
  v.required("model", s.model);
  v.required("input", s.input);
  v.required("data", s.data);
  v.required("batch", s.batch, Range{0, INT64_MAX});
  v.required("ranks", s.ranks, Range{1, INT32_MAX});
  v.required("transport", s.transport);
  v.required("network", s.network);
  v.required("line_rate_bytes_per_s", s.line_rate_bytes_per_s, positive);
  v.required("mode", s.mode, Mode{});
  v.required("target_accuracy", s.target_accuracy, share);
  v.required("timed", s.timed);
  v.hold(check_rounds, s);
  v.required("trained", s.trained);
  v.required("notes", s.notes);
}

void fields(auto& v, Is<Evaluation> auto& all) { v.required("setups", all.setups); }

std::string_view name_of(Role role) { return kRoles[to_index(role)]; }
std::string_view name_of(Budget budget) { return kBudgets[to_index(budget)]; }

std::string title_of(const Setup& s) {
  std::string title = s.model;
  if (!s.input.empty()) title += " " + s.input;
  if (!s.data.empty()) title += " " + s.data;
  if (s.batch > 0) title += fmt::format(", batch {}", s.batch);
  return title + fmt::format(", {} ranks, {}{}", s.ranks, s.network,
                             s.mode == kRehearsed ? ", rehearsed" : "");
}

std::string to_json(const Evaluation& all) { return written_document(kEvaluationDocument, all); }
Evaluation evaluation_from_json(const std::string& text, const std::string& place) {
  return read_document<Evaluation>(kEvaluationDocument, text, place);
}
Evaluation load_evaluation(const std::filesystem::path& path) {
  return evaluation_from_json(read_file(path), path.string());
}

void validate(const Evaluation& all, const std::string& place) {
  validate_document(kEvaluationDocument, all, place.empty() ? "the Evaluation" : place);
}
void save(const Evaluation& all, const std::filesystem::path& path) {
  save_document(kEvaluationDocument, all, path);
}

}  // namespace linerate::doc
