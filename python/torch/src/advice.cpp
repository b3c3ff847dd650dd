// linerate.torch._core.calibrate(), advise() and save_timeline(): the verbs' own code, on a group
// that is there.
#include "advice.hpp"

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

/// The Advice as JSON, and as the command prints it: the best of each exchange, and all settings.
/// `workload` and `cluster` are documents. `more` and `current` are strategies, `refuted` those
/// that the job has tried.
std::tuple<std::string, std::string, std::string> advised(
    const std::string& workload, const std::string& cluster, const std::string& current, int ranks,
    const std::string& bandwidth, const std::vector<std::string>& more,
    const std::vector<std::string>& steps_to_target, double least_gain,
    const std::string& framework, const std::vector<std::string>& refuted) {
  advise::AdviseOptions options;
  options.ranks = ranks;
  options.current = doc::parse_strategy(current);
  if (!bandwidth.empty()) options.bandwidth = parse_rate(bandwidth);
  for (const std::string& text : more)
    for (doc::Strategy& one : doc::parse_strategies(text)) options.more.push_back(std::move(one));
  for (const std::string& text : steps_to_target)
    for (advise::StepsToTarget& one : advise::read_steps_to_target(text))
      options.steps.push_back(std::move(one));
  options.least_gain = least_gain;
  if (!framework.empty()) options.framework = advise::parse_framework(framework);
  for (const std::string& text : refuted) options.refuted.push_back(doc::parse_strategy(text));
  const doc::Advice advice =
      advise::advise(doc::workload_from_json(workload, "the run"),
                     doc::cluster_from_json(cluster, "the calibration"), options);
  return {doc::to_json(advice), in_python(report::to_text(advice, /*all=*/false)),
          in_python(report::to_text(advice, /*all=*/true))};
}

}  // namespace

void add_advice(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("calibrate", &calibrated, Unlocked());
  m.def("advise", &advised, Unlocked());
  m.def(
      "save_timeline",
      [](const std::string& text, const std::string& path) {
        doc::save(doc::timeline_from_json(text, "the report"), path);
      },
      Unlocked());
}

}  // namespace linerate::python
