// linerate evaluate: compressors against tuned baselines. Rehearsals run here; trainings in
// `linerate-torch`, which gets the same options.
#include <vector>

#include "linerate/cli/run_program.hpp"
#include "linerate/cli/training_options.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/verbs/contest.hpp"
#include "linerate/verbs/option_checks.hpp"
#include "linerate/verbs/question_argument.hpp"

namespace linerate::cli {
namespace {

// What may be refused is read before the ranks come together.
void evaluate_rehearsed(const EvaluateArguments& a) {
  verbs::WorkloadArgument w;
  w.source.reference = a.workload;
  w.source.input = a.input;
  w.source.step_time = a.step_time;
  w.scale = a.scale;
  if (models::zoo_name(a.workload))  // it needs a batch; of a file the batch is its own
    w.source.batch = verbs::parse_option("--batch", a.batches, parse_integer);
  const doc::Workload workload = verbs::read_workload(w);
  const doc::Cluster cluster = doc::load_cluster(a.cluster);
  run_evaluation(a, [&](comm::Communicator& communicator, const doc::Setup& place,
                        const verbs::Progress& progress) {
    return std::vector{
        verbs::rehearsed_setup(communicator, workload, cluster, a.contest, place, progress)};
  });
}

}  // namespace

void setup_evaluate(CLI::App& app) {
  add_evaluate_verb(app, [](const EvaluateArguments& a) {
    if (a.rehearse) return evaluate_rehearsed(a);
    start_beside("linerate-torch");
  });
}

}  // namespace linerate::cli
