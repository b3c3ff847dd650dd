#include "linerate/counters/system_counters.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "linerate/core/error.hpp"

namespace linerate::counters {
namespace {

// The number in a file of one line; absent if the file does not exist or holds none.
std::optional<std::int64_t> read_integer(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

}  // namespace

std::vector<std::string> network_interfaces(const SystemRoots& roots) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(roots.net, ignored)) {
    const std::string name = entry.path().filename();
    std::ifstream file(entry.path() / "operstate");
    std::string state;
    file >> state;
    // Many virtual interfaces never say more than "unknown" although they carry traffic.
    if (name != "lo" && (state == "up" || state == "unknown")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

NicBytes read_nic(const std::string& interface, const SystemRoots& roots) {
  const std::filesystem::path folder = roots.net / interface / "statistics";
  const auto received = read_integer(folder / "rx_bytes"), sent = read_integer(folder / "tx_bytes");
  if (!received || !sent)
    throw InputError(
        folder.string(),
        "expected rx_bytes and tx_bytes of a network interface, found none; \"ip link\" lists "
        "the interfaces of this machine");
  return {*received, *sent};
}

std::optional<double> line_rate_bytes_per_s(const std::string& interface,
                                            const SystemRoots& roots) {
  const auto megabits = read_integer(roots.net / interface / "speed");  // Mbit/s; -1: unknown
  if (!megabits || *megabits <= 0) return std::nullopt;
  return static_cast<double>(*megabits) * 1e6 / 8;
}

CpuTicks read_cpu(const SystemRoots& roots) {
  CpuTicks ticks;
  std::ifstream machine(roots.proc / "stat");
  std::string word;
  // cpu  user nice system idle iowait irq softirq steal (guest times are part of user): proc(5).
  machine >> word;
  for (int field = 0; field < 8; ++field) {
    std::int64_t value = 0;
    if (word != "cpu" || !(machine >> value))
      throw InputError((roots.proc / "stat").string(),
                       "expected a line \"cpu\" with eight numbers");
    ticks.total += value;
    if (field == 3 || field == 4) ticks.idle += value;
  }
  std::ifstream own(roots.proc / "self" / "stat");
  std::string line;
  std::getline(own, line);
  // The command's name, in parentheses, may hold blanks; utime and stime are fields 14 and 15,
  // after it 12 and 13.
  std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  for (int field = 1; field <= 11; ++field) rest >> word;
  std::int64_t user = 0, system = 0;
  if (!(rest >> user >> system))
    throw InputError((roots.proc / "self/stat").string(),
                     "expected user and system time in fields 14 and 15");
  ticks.process = user + system;
  return ticks;
}

}  // namespace linerate::counters
