#include "linerate/exec/system_counters.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stop_token>
#include <thread>

#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/exec/sampler.hpp"

namespace linerate::exec {
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

// A thread reads the kernel's counters every period. Counters only grow, so a sample is the
// difference of two readings over the time between them. A late wake-up changes the interval and
// not the rate.

struct Sampler::State {
  struct Reading {
    std::int64_t time_ns = 0;
    NicBytes nic;
    comm::Traffic traffic;
    CpuTicks cpu;
  };

  Reading read() const {
    Reading now;
    for (const std::string& interface : interfaces) {
      const NicBytes one = read_nic(interface, options.roots);
      now.nic.received += one.received;
      now.nic.sent += one.sent;
    }
    if (options.traffic) now.traffic = options.traffic();
    now.cpu = read_cpu(options.roots);
    now.time_ns = steady_ns();
    return now;
  }

  SamplerOptions options;
  std::vector<std::string> interfaces;
  std::vector<Reading> readings;
  std::jthread thread;

  // The sampling thread. Readings belong to it until halt() has joined it, so they need no lock.
  void loop(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any wake;
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait_for(lock, stop, options.period, [] { return false; });
      if (stop.stop_requested()) return;
      try {
        readings.push_back(read());
      } catch (const std::exception&) {
        return;  // the interface went away: what was sampled so far stays
      }
    }
  }

  void halt() {
    thread.request_stop();
    if (thread.joinable()) thread.join();
  }
};

Sampler::Sampler(SamplerOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  const SamplerOptions& o = state_->options;
  state_->interfaces = o.interfaces.empty() ? network_interfaces(o.roots) : o.interfaces;
  state_->readings.push_back(state_->read());  // here, so that a wrong name throws to the caller
  state_->thread =
      std::jthread([state = state_.get()](const std::stop_token& stop) { state->loop(stop); });
}

Sampler::~Sampler() = default;

// An example: readings at 0, 50 and 110 ms show 0, 1 and 4 MB sent. The samples are 20 MB/s at 50
// ms and 50 MB/s at 110 ms. `value(a, b, s)` gives the sample between the readings a and b, which
// are s seconds apart.
std::vector<doc::Counter> Sampler::stop() {
  using Reading = State::Reading;
  state_->halt();
  std::vector<doc::Counter> counters;
  const auto add = [&](const std::string& name, bool wanted, auto value) {
    if (!wanted || state_->readings.size() < 2) return;
    doc::Counter counter;
    counter.name = name;
    counter.period_s = state_->options.period.count();
    for (std::size_t i = 1; i < state_->readings.size(); ++i) {
      const Reading &a = state_->readings[i - 1], &b = state_->readings[i];
      counter.samples.push_back(
          {b.time_ns, value(a, b, static_cast<double>(b.time_ns - a.time_ns) * 1e-9)});
    }
    counters.push_back(std::move(counter));
  };
  const bool nics = !state_->interfaces.empty(),
             traffic = static_cast<bool>(state_->options.traffic);
  const double ticks_per_s = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto add_rate = [&](const std::string& name, bool wanted, auto bytes) {
    add(name, wanted, [bytes](const Reading& a, const Reading& b, double s) {
      return static_cast<double>(bytes(b) - bytes(a)) / s;
    });
  };
  add_rate("nic_sent_bytes_per_s", nics, [](const Reading& r) { return r.nic.sent; });
  add_rate("nic_received_bytes_per_s", nics, [](const Reading& r) { return r.nic.received; });
  add_rate("transport_sent_bytes_per_s", traffic,
           [](const Reading& r) { return r.traffic.sent.value; });
  add_rate("transport_received_bytes_per_s", traffic,
           [](const Reading& r) { return r.traffic.received.value; });
  add("cpu_share", true, [](const Reading& a, const Reading& b, double) {
    const double total = static_cast<double>(b.cpu.total - a.cpu.total);
    return total > 0 ? 1 - static_cast<double>(b.cpu.idle - a.cpu.idle) / total : 0.0;
  });
  add("process_cores", true, [ticks_per_s](const Reading& a, const Reading& b, double s) {
    return static_cast<double>(b.cpu.process - a.cpu.process) / ticks_per_s / s;
  });
  return counters;
}

std::optional<double> Sampler::line_rate_bytes_per_s() const {
  if (state_->options.line_rate) return state_->options.line_rate->value;
  std::optional<double> slowest;
  for (const std::string& interface : state_->interfaces) {
    const auto rate = exec::line_rate_bytes_per_s(interface, state_->options.roots);
    if (rate && (!slowest || *rate < *slowest)) slowest = rate;
  }
  return slowest;
}

const std::vector<std::string>& Sampler::interfaces() const { return state_->interfaces; }

}  // namespace linerate::exec
