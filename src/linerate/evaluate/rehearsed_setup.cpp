#include "linerate/evaluate/rehearsed_setup.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "linerate/exec/rehearse.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/rehearse/rehearse.hpp"

namespace linerate::evaluate {
namespace {

// Rehearses some steps. The bytes are the mean over the ranks. Collective.
Round run_round(comm::Communicator& communicator, const std::shared_ptr<const doc::Plan>& plan,
                std::int64_t steps) {
  exec::RehearsalOptions options;
  options.steps = static_cast<int>(steps);
  Round round;
  options.sent_bytes = &round.sent_bytes;
  round.timeline = exec::rehearse(communicator, plan, options);
  communicator.all_reduce(comm::buffer(round.sent_bytes), comm::Reduce::sum, "bytes sent")->wait();
  round.sent_bytes /= communicator.size();
  return round;
}

/// If the Cluster has no codec of a compressor's name, its coding takes no time.
void note_free_coding(doc::Setup& setup) {
  for (const doc::TimedRun& run : setup.timed)
    if ((run.role == doc::Role::sixteen_bit || run.role == doc::Role::candidate) &&
        plan::traits_of(doc::parse_strategy(run.strategy)).changes_convergence &&
        run.encode_s + run.decode_s == 0)
      setup.notes.push_back(run.strategy +
                            ": the Cluster has no codec of that name, so encoding and decoding "
                            "take no time here; linerate calibrate --codecs measures them");
}

}  // namespace

// A strategy is prepared by planning it once. Its rounds then rehearse the Plan's steady steps.
NewSetup rehearsed_setup(comm::Communicator& communicator, const doc::Workload& workload,
                         const doc::Cluster& cluster, const ContestOptions& options,
                         doc::Setup place, const Progress& progress) {
  place.model = workload.name;
  place.batch = workload.batch_per_rank;
  place.mode = doc::kRehearsed;
  const auto run = [=, &communicator](doc::Setup& setup) {
    std::optional<BytesPerSecond> line_rate;
    if (setup.line_rate_bytes_per_s) line_rate = BytesPerSecond{*setup.line_rate_bytes_per_s};
    const auto prepare = [&](const std::string& strategy) -> RunRound {
      doc::Plan plan = *rehearse::plan_strategy(communicator, workload, cluster,
                                                doc::parse_strategy(strategy), line_rate)
                            .plan;
      plan.warm_up.clear();  // the steps after it are timed
      return [&communicator, plan = std::make_shared<const doc::Plan>(std::move(plan))](
                 std::int64_t steps) { return run_round(communicator, plan, steps); };
    };
    setup.timed = contest(communicator, options, workload.gradient_bytes(), prepare, progress);
    note_free_coding(setup);
  };
  return {std::move(place), run};
}

}  // namespace linerate::evaluate
