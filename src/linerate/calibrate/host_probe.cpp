// What machines have besides their network. Ranks find out who shares a machine by one all-reduce.
// Each rank writes a hash of its machine, and its cores, into its own place of a vector of zeros.
// The sum is the vector of all ranks.
#include "linerate/calibrate/host_probe.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "linerate/calibrate/call_train.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

/// The same for all ranks on one running kernel, whatever its containers and namespaces are named.
std::string machine() {
  std::string id;
  if (std::ifstream boot("/proc/sys/kernel/random/boot_id"); std::getline(boot, id)) return id;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

/// As doubles hold it: a hash of its name, and its cores.
struct Machine {
  double id = 0, cores = 0;
};

/// By rank. Collective.
std::vector<Machine> machines_of(comm::Communicator& communicator) {
  std::vector<double> all(2 * to_index(communicator.size()), 0.0);  // every rank fills in its own
  const auto mine = 2 * to_index(communicator.rank());
  all[mine] = static_cast<double>(std::hash<std::string>{}(machine()) >> 12);
  all[mine + 1] = std::max(1u, std::thread::hardware_concurrency());
  communicator.all_reduce(comm::buffer(all), comm::Reduce::sum, "core probe")->wait();
  std::vector<Machine> machines;
  for (std::size_t i = 0; i < all.size(); i += 2) machines.push_back({all[i], all[i + 1]});
  return machines;
}

/// All-reduces of zeros, one type or the other.
class SumTimer {
 public:
  SumTimer(comm::Communicator& communicator, std::int64_t bytes)
      : communicator_(communicator), bytes_(bytes), data_(to_index(bytes)) {}

  double time(DType type) {
    communicator_.barrier("half sum probe")->wait();
    const std::int64_t begin = steady_ns();
    communicator_
        .all_reduce({data_.data(), {bytes_ / size_of(type)}, type}, comm::Reduce::sum,
                    "half sum probe")
        ->wait();
    return static_cast<double>(steady_ns() - begin) * 1e-9;
  }

 private:
  comm::Communicator& communicator_;
  std::int64_t bytes_;
  std::vector<std::byte> data_;
};

}  // namespace

int probe_cores(comm::Communicator& communicator) {
  std::map<double, double> cores_of;
  for (const Machine& machine : machines_of(communicator)) cores_of[machine.id] = machine.cores;
  double cores = 0;
  for (const auto& [id, count] : cores_of) cores += count;
  return static_cast<int>(cores);
}

int rank_on_machine(comm::Communicator& communicator) {
  const std::vector<Machine> machines = machines_of(communicator);
  const auto mine = machines.begin() + communicator.rank();
  return static_cast<int>(
      std::count_if(machines.begin(), mine, [&](const Machine& m) { return m.id == mine->id; }));
}

double probe_half_sum(comm::Communicator& communicator, const HalfSumProbeOptions& options) {
  SumTimer timer(communicator, options.size.value);
  std::vector<double> full, half;
  double spent = 0;
  for (int round = 0; round < options.fewest_rounds || spent < options.budget.count(); ++round) {
    std::vector<double> seconds = {timer.time(DType::f32), timer.time(DType::f16)};
    mean_over_ranks(communicator, seconds);  // every rank stops after the same round
    full.push_back(seconds[0]), half.push_back(seconds[1]);
    spent += seconds[0] + seconds[1];
  }
  const double share = static_cast<double>(communicator.size() - 1) / communicator.size();
  const double extra = median(half) - median(full);
  return std::max(0.0, extra / (static_cast<double>(options.size.value) * share));
}

}  // namespace linerate::calibrate
