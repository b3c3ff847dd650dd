// The kernel's counters of network interfaces and CPU time, read from /proc and /sys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/exec/system_roots.hpp"

namespace linerate::exec {

/// Interfaces that are up, loopback left out; ascending by name.
std::vector<std::string> network_interfaces(const SystemRoots& roots = {});

struct NicBytes {
  std::int64_t received = 0;
  std::int64_t sent = 0;
};
/// Bytes since boot, frame headers included. Throws InputError naming the interface.
NicBytes read_nic(const std::string& interface, const SystemRoots& roots = {});

/// Speed of the interface per direction; nothing if the kernel does not know it (loopback, most
/// virtual ones).
std::optional<double> line_rate_bytes_per_s(const std::string& interface,
                                            const SystemRoots& roots = {});

/// Clock ticks since boot, all cores together, and of this process.
struct CpuTicks {
  std::int64_t total = 0;
  std::int64_t idle = 0;     // idle and waiting for disks
  std::int64_t process = 0;  // user and system time of this process
};
/// Throws InputError when /proc does not read as expected.
CpuTicks read_cpu(const SystemRoots& roots = {});

}  // namespace linerate::exec
