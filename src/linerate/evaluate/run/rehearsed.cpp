#include "linerate/evaluate/run/rehearsed.hpp"

#include <algorithm>

#include "linerate/comm/agreement.hpp"
#include "linerate/exec/rehearse.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/whatif/question.hpp"

namespace linerate::evaluate {
namespace {

class RehearsedContestant : public Contestant {
 public:
  RehearsedContestant(comm::Communicator& communicator, std::shared_ptr<const doc::Plan> plan)
      : communicator_(communicator), plan_(std::move(plan)) {}

  Round run(std::int64_t steps) override {
    exec::RehearsalOptions options;
    options.steps = static_cast<int>(steps);
    Round round;
    options.sent_bytes = &round.sent_bytes;
    round.timeline = exec::rehearse(communicator_, plan_, options);
    communicator_.all_reduce({&round.sent_bytes, {1}, DType::f64}, comm::Reduce::sum, "bytes sent")
        ->wait();
    round.sent_bytes /= communicator_.size();
    return round;
  }

 private:
  comm::Communicator& communicator_;
  std::shared_ptr<const doc::Plan> plan_;
};

/// Computation waits as long as the Workload says, on every rank.
doc::Cluster without_computation(doc::Cluster cluster) {
  cluster.contention.reset();
  cluster.rank_speeds.clear();
  return cluster;
}

/// Where the Cluster has no codec of a compressor's name, its coding takes no time.
void note_free_coding(doc::Setup& setup) {
  for (const doc::TimedRun& run : setup.timed)
    if ((run.role == doc::Role::sixteen_bit || run.role == doc::Role::candidate) &&
        plan::traits_of(doc::parse_strategy(run.strategy)).changes_convergence &&
        run.encode_s + run.decode_s == 0)
      setup.notes.push_back(run.strategy +
                            ": the Cluster has no codec of that name, so encoding and decoding "
                            "cost nothing here; linerate calibrate --codecs measures them");
}

}  // namespace

doc::Setup empty_setup(const comm::Communicator& communicator, const doc::Workload& workload,
                       const RehearsedOptions& options) {
  doc::Setup setup;
  setup.model = workload.name;
  setup.batch = workload.batch_per_rank;
  setup.ranks = communicator.size();
  setup.transport = communicator.transport();
  setup.network = options.network;
  if (options.line_rate) setup.line_rate_bytes_per_s = options.line_rate->value;
  setup.mode = doc::kRehearsed;
  return setup;
}

doc::Setup rehearsed_setup(comm::Communicator& communicator, const doc::Workload& workload,
                           const doc::Cluster& given, const RehearsedOptions& options,
                           const std::function<void(const std::string&)>& progress) {
  const doc::Cluster cluster = without_computation(given);
  doc::Setup setup = empty_setup(communicator, workload, options);
  Field field;
  field.gradient_bytes = workload.gradient_bytes();
  field.progress = progress;
  field.make = [&](const std::string& text) -> std::unique_ptr<Contestant> {
    std::shared_ptr<const doc::Plan> plan;
    comm::require_success(communicator, "evaluate", [&] {
      whatif::Question question;
      question.strategies = {doc::parse_strategy(text)};
      question.ranks = {communicator.size()};
      if (options.line_rate) question.bandwidths = {*options.line_rate};
      doc::Plan planned = whatif::plan_one(workload, cluster, question).plan;
      planned.warm_up.clear();  // the steps behind it are timed
      plan = std::make_shared<const doc::Plan>(std::move(planned));
    });
    return std::make_unique<RehearsedContestant>(communicator, plan);
  };
  setup.timed = contest(communicator, options.contest, field);
  note_free_coding(setup);
  return setup;
}

}  // namespace linerate::evaluate
