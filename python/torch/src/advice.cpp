// linerate.torch._core.calibrate(), advise() and save_timeline(): the verbs' own code, on a group
// that is there.
#include "advice.hpp"

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "linerate/advise/advise.hpp"
#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/core/in_python.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/report/texts.hpp"
#include "world.hpp"

namespace linerate::python {
namespace {

/// The Cluster as JSON, the same on every rank. `codecs`: compressors are timed, too. Collective.
std::string calibrated(const World& world, std::int64_t largest_bytes, double budget_s, int threads,
                       bool codecs) {
  calibrate::ProbeOptions options;
  options.budget = Duration{budget_s};
  options.largest = Bytes{largest_bytes};
  if (codecs) options.codecs = calibrate::all_compressors();
  calibrate::EmulatedTraining load(threads);
  return doc::to_json(calibrate::probe_cluster(world.get(), load, options));
}

struct Question {
  std::string workload, cluster, current;  // documents, a strategy
  int ranks = 0;
  std::string bandwidth;
  std::vector<std::string> more, steps;  // strategies, steps to a target
  double least_gain = 0.02;
  std::string framework;
  std::vector<std::string> refuted;  // strategies that the job has tried
};

/// The Advice as JSON, and as the command prints it: the best of each exchange, and all settings.
std::tuple<std::string, std::string, std::string> advised(const Question& q) {
  advise::AdviseOptions options;
  options.ranks = q.ranks;
  options.current = doc::parse_strategy(q.current);
  if (!q.bandwidth.empty()) options.bandwidth = parse_rate(q.bandwidth);
  for (const std::string& text : q.more)
    for (doc::Strategy& one : doc::parse_strategies(text)) options.more.push_back(std::move(one));
  for (const std::string& text : q.steps)
    for (advise::StepsToTarget& one : advise::read_steps_to_target(text))
      options.steps.push_back(std::move(one));
  options.least_gain = q.least_gain;
  if (!q.framework.empty()) options.framework = advise::parse_framework(q.framework);
  for (const std::string& text : q.refuted) options.refuted.push_back(doc::parse_strategy(text));
  const doc::Advice advice =
      advise::advise(doc::workload_from_json(q.workload, "the run"),
                     doc::cluster_from_json(q.cluster, "the calibration"), options);
  return {doc::to_json(advice), in_python(report::to_text(advice, /*all=*/false)),
          in_python(report::to_text(advice, /*all=*/true))};
}

}  // namespace

void add_advice(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("calibrate", &calibrated, Unlocked());
  m.def(
      "advise",
      [](std::string workload, std::string cluster, std::string current, int ranks,
         std::string bandwidth, std::vector<std::string> more, std::vector<std::string> steps,
         double least_gain, std::string framework, std::vector<std::string> refuted) {
        return advised({std::move(workload), std::move(cluster), std::move(current), ranks,
                        std::move(bandwidth), std::move(more), std::move(steps), least_gain,
                        std::move(framework), std::move(refuted)});
      },
      Unlocked());
  m.def(
      "save_timeline",
      [](const std::string& text, const std::string& path) {
        doc::save(doc::timeline_from_json(text, "the report"), path);
      },
      Unlocked());
}

}  // namespace linerate::python
