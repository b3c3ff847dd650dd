// A training run in which one rank misbehaves where it submits the first collective of a given
// name; matrix.py starts it under mpirun and reads what every rank says.
//   fault_training FAULT PHASE CULPRIT TIMEOUT_S
// FAULT: kill, stop, exit, throw, mismatch, nan (its copy of the result is spoilt), or none: then
// it resumes. The checkpoint is in the folder "run".
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "faults/interposed_communicator.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/zoo/train.hpp"

using namespace linerate;

namespace {

class Culprit : public faults::InterposedCommunicator {
 public:
  Culprit(comm::Communicator& inner, std::string fault, std::string phase, bool is_this_rank)
      : InterposedCommunicator(inner),
        fault_(std::move(fault)),
        phase_(std::move(phase)),
        armed_(is_this_rank) {}

  comm::WorkPtr submit(comm::Submission what) override {
    const bool has_result = what.call != comm::CollectiveCall::barrier;
    const bool now =
        armed_ && what.name.find(phase_) != std::string::npos && (has_result || fault_ != "nan");
    if (!now) return InterposedCommunicator::submit(std::move(what));
    armed_ = false;
    if (fault_ == "kill") raise(SIGKILL);
    if (fault_ == "stop") raise(SIGSTOP);
    if (fault_ == "exit") std::exit(3);
    if (fault_ == "throw") throw InputError("weights.bin", "truncated");
    if (fault_ == "mismatch") shorten(what);
    const comm::Buffer result = what.output;
    comm::WorkPtr work = InterposedCommunicator::submit(std::move(what));
    if (fault_ == "nan") {  // all ones, a NaN in every floating-point type
      work->wait();
      std::fill_n(static_cast<unsigned char*>(result.data), size_of(result.dtype), 0xff);
    }
    return work;
  }

 private:
  static void shorten(comm::Submission& what) {
    const bool in_place = what.input.data == what.output.data;
    std::int64_t& count = what.output.count.value;
    count = std::max<std::int64_t>(0, count - 1);
    if (in_place) what.input = what.output;
    what.pieces.reset();  // the fault, not what the pieces are checked for
  }

  std::string fault_, phase_;
  bool armed_;
};

/// Where in the names of collectives a phase is.
std::string name_in(const std::string& phase, const std::string& fault) {
  if (phase == "set_up") return fault == "nan" ? "initial parameters" : "DataParallel: model";
  if (phase == "first_step") return "step 0: all-reduce";
  if (phase == "step") return "step 7: all-reduce";
  if (phase == "between_halves") return "step 7: all-gather";
  if (phase == "end_of_epoch") return fault == "nan" ? "step 9: all-reduce" : "loss of the epoch";
  // Written behind step 5; what is spoilt there would be in the file.
  if (phase == "checkpoint") return fault == "nan" ? "step 4: all-reduce" : "checkpoint";
  throw UsageError("unknown phase " + phase);
}

int rank_of_job = -1;

void run(int argc, char** argv) {
  if (argc != 5) throw UsageError("fault_training FAULT PHASE CULPRIT TIMEOUT_S");
  const std::string fault = argv[1];
  const auto world = comm::make_world({.timeout = Duration{std::stod(argv[4])}});
  rank_of_job = world->rank();
  Culprit communicator(*world, fault, name_in(argv[2], fault),
                       fault != "none" && world->rank() == std::stoi(argv[3]));
  zoo::TrainOptions options;
  options.model = "mlp";
  options.input = models::parse_shape("1x12x12");
  options.samples = 240;
  options.batch = 8;
  options.epochs = 2;
  options.threads = 1;
  options.checked_steps = 0;
  const bool in_halves = std::string_view(argv[2]) == "between_halves";
  options.strategy = in_halves ? "dear(bucket=64KiB)" : "ddp(first=64B,bucket=64KiB)";
  options.checkpoint = "run";
  options.checkpoint_every = 5;
  options.resume = fault == "none";
  zoo::train(options, communicator);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "said by %d: %s\n", rank_of_job, e.what());
    return e.exit_code();
  }
}
