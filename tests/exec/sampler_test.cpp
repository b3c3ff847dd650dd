#include "linerate/exec/sampler.hpp"

#include <gmock/gmock.h>

#include <unistd.h>

#include <fstream>
#include <map>
#include <thread>

#include "linerate/core/error.hpp"
#include "linerate/exec/system_counters.hpp"

namespace linerate::exec {
namespace {

using testing::ElementsAre;

/// A made-up /proc and /sys/class/net.
struct FakeSystem {
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                 ("sampler_" + std::to_string(::getpid()) + "_" +
                                  testing::UnitTest::GetInstance()->current_test_info()->name());
  SystemRoots roots{folder / "proc", folder / "net"};

  FakeSystem() {
    put("proc/stat", "cpu  10 0 20 60 10 0 0 0 0 0\ncpu0 10 0 20 60 10 0 0 0 0 0\n");
    put("proc/self/stat", "42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 31 11 0 0 20 0\n");
    nic("eth0", 1000, 2000, "up", "1000");
    nic("eth1", 1, 2, "up", "100");
    nic("lo", 7, 7, "unknown", "");
    nic("down0", 5, 5, "down", "-1");
  }
  ~FakeSystem() { std::filesystem::remove_all(folder); }
  void put(const std::string& name, const std::string& text) {
    // By rename: the sampling thread never sees half a file.
    const std::filesystem::path file = folder / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file.string() + ".new") << text;
    std::filesystem::rename(file.string() + ".new", file);
  }
  void nic(const std::string& name, int received, int sent, const std::string& state,
           const std::string& speed) {
    put("net/" + name + "/statistics/rx_bytes", std::to_string(received) + "\n");
    put("net/" + name + "/statistics/tx_bytes", std::to_string(sent) + "\n");
    put("net/" + name + "/operstate", state + "\n");
    put("net/" + name + "/speed", speed + "\n");
  }
};

TEST(SystemCounters, ReadsTheKernelsFiles) {
  FakeSystem system;
  EXPECT_THAT(network_interfaces(system.roots),
              ElementsAre("eth0", "eth1"));  // neither loopback nor down
  EXPECT_EQ(read_nic("eth0", system.roots).received, 1000);
  EXPECT_EQ(read_nic("eth0", system.roots).sent, 2000);
  const CpuTicks ticks = read_cpu(system.roots);
  EXPECT_EQ(ticks.total, 100);  // 10 + 0 + 20 + 60 + 10
  EXPECT_EQ(ticks.idle, 70);    // idle 60, waiting for disks 10
  EXPECT_EQ(ticks.process,
            42);  // 31 + 11: the name's parentheses and blanks do not shift the fields
}

TEST(SystemCounters, UnknownSpeedIsAbsent) {
  FakeSystem system;
  EXPECT_EQ(line_rate_bytes_per_s("eth0", system.roots), 1.25e8);  // 1000 Mbit/s / 8
  EXPECT_EQ(line_rate_bytes_per_s("lo", system.roots), std::nullopt);
  EXPECT_EQ(line_rate_bytes_per_s("down0", system.roots), std::nullopt);  // the kernel says -1
}

TEST(Sampler, TheSlowestInterfaceGivesTheLineRateUnlessGiven) {
  FakeSystem system;
  EXPECT_EQ(Sampler({.roots = system.roots}).line_rate_bytes_per_s(), 1.25e7);  // eth1: 100 Mbit/s
  EXPECT_EQ(
      Sampler({.line_rate = BytesPerSecond{5.0}, .roots = system.roots}).line_rate_bytes_per_s(),
      5.0);
}

TEST(Sampler, AnAbsentInterfaceIsNamed) {
  FakeSystem system;
  EXPECT_THAT([&] { Sampler sampler({.interfaces = {"eth9"}, .roots = system.roots}); },
              testing::ThrowsMessage<InputError>(testing::HasSubstr("eth9")));
}

/// Ranks of one host talk through memory: the transport's traffic is a counter of its own.
TEST(Sampler, RatesIntegrateToTheBytesThatPassed) {
  FakeSystem system;
  const std::int64_t before = std::chrono::steady_clock::now().time_since_epoch().count();
  std::int64_t sent = 0;
  const auto traffic = [&] { return comm::Traffic{{sent += 100}, {0}}; };
  Sampler sampler({.period = Duration{0.001},
                   .interfaces = {"eth0"},
                   .traffic = traffic,
                   .roots = system.roots});
  system.nic("eth0", 1000 + 300, 2000 + 700, "up", "1000");
  // Some sample after the change is enough, however late the machine is.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::vector<doc::Counter> counters = sampler.stop();
  if (counters.empty())
    GTEST_SKIP() << "the sampling thread did not run once in 20 ms on this machine";
  EXPECT_EQ(counters.size(), 6u);
  for (const doc::Counter& counter : counters) {
    std::int64_t above_0 = 0;
    for (const doc::CounterSample& sample : counter.samples) {
      EXPECT_GT(sample.time_ns, before);
      above_0 += sample.value > 0;
    }
    const std::map<std::string, std::int64_t> want = {
        {"nic_sent_bytes_per_s", 1},  // all of it within one interval
        {"nic_received_bytes_per_s", 1},
        {"transport_sent_bytes_per_s", std::ssize(counter.samples)},
        {"transport_received_bytes_per_s", 0}};
    const auto known = want.find(counter.name);
    EXPECT_TRUE(known == want.end() || known->second == above_0) << counter.name << above_0;
  }
}

}  // namespace
}  // namespace linerate::exec
