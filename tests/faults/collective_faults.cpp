// A job that goes through every collective, in which one rank commits one fault in one phase:
// matrix.py starts it under mpirun and reads what every rank says.
//   collective_faults FAULT PHASE CULPRIT TIMEOUT_S
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/random.hpp"

using namespace linerate;

namespace {

constexpr std::int64_t kElements = 300'000;  // a rank's part
constexpr int kRounds = 4, kFaulty = 2;      // the round in which it happens

struct Fault {
  std::string kind, phase;
  int culprit;
};

/// Of this process, at once.
void commit(const std::string& kind) {
  if (kind == "kill") kill(getpid(), SIGKILL);
  if (kind == "stop") kill(getpid(), SIGSTOP);
  if (kind == "exit") std::exit(1);
  if (kind == "throw") throw InputError("weights.bin", "truncated");
}

/// Every collective once; the culprit commits its fault while its own is under way.
class Rounds {
 public:
  Rounds(comm::Communicator& comm, const Fault& fault)
      : comm_(comm),
        fault_(fault),
        culprit_(comm.rank() == fault.culprit),
        in_(static_cast<std::size_t>(kElements * comm.size())),
        out_(in_.size()) {}

  void run() {
    using comm::Reduce;
    const int n = comm_.size();
    for (round_ = 0; round_ < kRounds; ++round_) {
      if (due("between")) {
        if (fault_.kind == "mismatch") continue;  // one round less than the others
        commit(fault_.kind);
      }
      play("all_reduce", [&](std::int64_t part) {
        return comm_.all_reduce(out(part), Reduce::sum, "all_reduce");
      });
      play("reduce_scatter", [&](std::int64_t part) {
        return comm_.reduce_scatter(in(n * part), out(part), Reduce::sum, "reduce_scatter");
      });
      play("all_gather", [&](std::int64_t part) {
        return comm_.all_gather(in(part), out(n * part), "all_gather");
      });
      play("all_gather_v", [&](std::int64_t part) {
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(n), part);
        return comm_.all_gather_v(in(part), out(n * part), counts, "all_gather_v");
      });
      play("all_to_all", [&](std::int64_t part) {
        return comm_.all_to_all(in(n * part), out(n * part), "all_to_all");
      });
      play("broadcast", [&](std::int64_t part) {
        return comm_.broadcast(out(part), fault_.culprit, "broadcast");
      });
      play("barrier", [&](std::int64_t part) {
        return part == kElements ? comm_.barrier("barrier") : comm_.broadcast(out(1), 0, "barrier");
      });
      split();
    }
  }

 private:
  bool due(const std::string& phase) const {
    return culprit_ && round_ == kFaulty && fault_.phase == phase;
  }
  comm::ConstBuffer in(std::int64_t count) { return {in_.data(), {count}, DType::f32}; }
  comm::Buffer out(std::int64_t count) { return {out_.data(), {count}, DType::f32}; }

  void play(const std::string& phase, const std::function<comm::WorkPtr(std::int64_t)>& submit) {
    const float value = due(phase) && fault_.kind == "nan" ? NAN : 1.0f;
    std::fill(in_.begin(), in_.end(), value);
    std::fill(out_.begin(), out_.end(), value);
    const bool other = due(phase) && fault_.kind == "mismatch";
    const comm::WorkPtr work = submit(other ? kElements / 2 : kElements);
    if (due(phase)) commit(fault_.kind);
    work->wait();
    if (fault_.kind == "nan") same_everywhere(phase);
  }

  /// NaN is a value like any other: all ranks must hold the same bits of what they have in common.
  void same_everywhere(const std::string& phase) {
    const int parts = phase == "all_reduce" || phase == "broadcast" ? 1
                      : phase.starts_with("all_gather")             ? comm_.size()
                                                                    : 0;
    const auto own = static_cast<std::int64_t>(
        hash_bytes({reinterpret_cast<const char*>(out_.data()),
                    static_cast<std::size_t>(kElements * parts) * sizeof(float)}));
    std::int64_t low = own, high = own;
    comm_.all_reduce(comm::buffer(low), comm::Reduce::min, "low")->wait();
    comm_.all_reduce(comm::buffer(high), comm::Reduce::max, "high")->wait();
    if (low != high) throw InternalError(phase + ": ranks hold different bits");
  }

  /// split waits on this thread, so its fault comes from another.
  void split() {
    const bool now = due("split");
    std::jthread other;
    if (now && fault_.kind == "throw") commit("throw");
    if (now && fault_.kind != "mismatch") {
      other = std::jthread([kind = fault_.kind] { commit(kind); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    static_cast<void>(comm_.split(0, 0, now && fault_.kind == "mismatch" ? "columns" : "rows"));
  }

  comm::Communicator& comm_;
  const Fault& fault_;
  bool culprit_;
  int round_ = 0;
  std::vector<float> in_, out_;
};

void run(const Fault& fault, double timeout) {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  comm::WorldOptions options{.timeout = Duration{timeout}, .start_timeout = Duration{timeout}};
  if (fault.phase == "make_world" && rank != nullptr && std::atoi(rank) == fault.culprit) {
    commit(fault.kind);
    if (fault.kind == "mismatch") options.expected_size = 17;
  }
  const auto world = comm::make_world(options);
  Rounds(*world, fault).run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  try {
    run({argv[1], argv[2], std::atoi(argv[3])}, std::atof(argv[4]));
    return 0;
  } catch (const Error& e) {
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    std::fprintf(stderr, "said by %s: %s\n", rank == nullptr ? "?" : rank, e.what());
    return e.exit_code();
  }
}
