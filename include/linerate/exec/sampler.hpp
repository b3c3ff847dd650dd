// Samples NIC bytes/s and CPU share in the background while a step runs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/exec/system_roots.hpp"

namespace linerate::exec {

/// What is sampled, and how often.
struct SamplerOptions {
  Duration period{0.05};  // between samples
  /// Empty: every interface that is up but loopback. Name "lo" when the transport runs over it.
  std::vector<std::string> interfaces = {};
  /// Per direction, of the slowest NIC; absent: what the kernel says, if anything.
  std::optional<BytesPerSecond> line_rate = {};
  /// Payload bytes of the transport, such as Communicator::traffic: the only network figure if
  /// ranks of one host talk through shared memory, which no NIC sees. Called from the sampling
  /// thread.
  std::function<comm::Traffic()> traffic = {};
  SystemRoots roots = {};  // of the kernel's counters
};

/// Counters on this rank's steady clock (Recorder::add moves them):
/// "nic_sent_bytes_per_s", "nic_received_bytes_per_s" (sum over the interfaces, frame headers
/// included), "transport_sent_bytes_per_s", "transport_received_bytes_per_s" (with `traffic`),
/// "cpu_share" (busy share of all cores, 0..1), "process_cores" (cores this process kept busy).
/// A sample has the time at the end of the interval it averages. The sampling thread sleeps in
/// between: about 0.1 ms of CPU time a sample.
/// Thread safety: one thread at a time.
class Sampler {
 public:
  /// Starts sampling. Throws InputError for an interface that does not exist.
  explicit Sampler(SamplerOptions options = {});
  /// Stops without an error.
  ~Sampler();

  /// Stops and returns the counters; empty ones are left out.
  [[nodiscard]] std::vector<doc::Counter> stop();
  /// Rate of the slowest sampled interface; nothing if neither the options nor the kernel know.
  std::optional<double> line_rate_bytes_per_s() const;
  /// Those that are sampled.
  const std::vector<std::string>& interfaces() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace linerate::exec
