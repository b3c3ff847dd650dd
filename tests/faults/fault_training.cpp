// A training run in which one rank misbehaves at a collective of a given name; the matrix starts it
// under mpirun and reads what every rank says.
//   fault_training FAULT CULPRIT TIMEOUT_S PHASE FOLDER
// FAULT: kill, stop, exit, throw, mismatch, nan or none. PHASE: a text in the names of collectives;
// the culprit acts where it submits the first of that name. FOLDER: of the checkpoint.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "faults/interposed_communicator.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/zoo/train.hpp"

using namespace linerate;

namespace {

class Culprit : public faults::Interposer {
 public:
  Culprit(std::string fault, std::string phase, bool is_this_rank)
      : fault_(std::move(fault)), phase_(std::move(phase)), armed_(is_this_rank) {}

  void before(const std::string& name, comm::Buffer& buffer) override {
    if (!armed_ || fault_ == "nan" || name.find(phase_) == std::string::npos) return;
    armed_ = false;
    if (fault_ == "kill") raise(SIGKILL);
    if (fault_ == "stop") raise(SIGSTOP);
    if (fault_ == "exit") std::exit(3);
    if (fault_ == "throw") throw InputError("weights.bin", "truncated");
    if (fault_ == "mismatch")
      buffer.count.value = std::max<std::int64_t>(0, buffer.count.value - 1);
  }
  bool spoils(const std::string& name) override {
    const bool now = armed_ && fault_ == "nan" && name.find(phase_) != std::string::npos;
    if (now) armed_ = false;
    return now;
  }

 private:
  std::string fault_, phase_;
  bool armed_;
};

void run(int argc, char** argv) {
  if (argc != 6) throw UsageError("fault_training FAULT CULPRIT TIMEOUT_S PHASE FOLDER");
  const auto world = comm::make_world({.timeout = Seconds{std::stod(argv[3])}});
  Culprit culprit(argv[1], argv[4], world->rank() == std::stoi(argv[2]));
  faults::InterposedCommunicator communicator(*world, culprit);
  zoo::TrainOptions options;
  options.model = "mlp";
  options.input = models::parse_shape("1x12x12");
  options.samples = 480;
  options.batch = 8;
  options.steps = 12;
  options.threads = 1;
  options.checked_steps = 0;
  options.strategy = "ddp(first=64B,bucket=64KiB)";
  options.checkpoint = argv[5];
  options.checkpoint_every = 5;
  const zoo::TrainReport report = zoo::train(options, communicator);
  std::printf("trained %lld steps\n", static_cast<long long>(report.steps));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "said: %s\n", e.what());
    return e.exit_code();
  }
}
