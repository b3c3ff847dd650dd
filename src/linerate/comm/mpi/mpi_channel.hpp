// Messages over MPI's non-blocking point-to-point calls. Private to comm/mpi.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/mpi/mpi_beats.hpp"
#include "linerate/comm/mpi/one_world.hpp"
#include "linerate/comm/mpi/peer_memory.hpp"
#include "linerate/comm/transport.hpp"

namespace linerate::comm {

class MpiChannel final : public Transport {
 public:
  MpiChannel(MPI_Comm world, Clock::duration timeout, OneWorld claim);
  ~MpiChannel() override;

  std::string name() const override { return "mpi"; }
  std::size_t chunk_bytes() const override { return std::size_t{256} << 10; }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) override;
  void poll() override { test(); }
  void wait_some() override;
  bool can_read_peers() const override { return memory_.has_value(); }
  bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) override;
  [[noreturn]] void fail(const std::string& reason) override;

  void abort(const std::string& reason) override;
  void begin(const Purpose& purpose) override;
  void give_up(const std::string& reason) override;
  std::chrono::nanoseconds idle_period() const override { return idle_; }
  void service() override;
  void leave() override;

 private:
  struct Pending {
    Transfer* transfer;
    std::size_t bytes;
    int peer;
    bool receiving;
  };

  void start_send(int peer, const void* data, std::size_t bytes, std::uint64_t tag,
                  Transfer& transfer) override;
  void posted(int code, const char* call);
  bool test();
  void keep_unfinished();
  [[noreturn]] void blame(const std::string& problem);
  void look_after_peers(Clock::time_point now);
  void serve_beats(Clock::time_point now);
  void abandon();
  void hear_abort();

  OneWorld claim_;  // first: given back when everything else is gone
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::shared_ptr<MpiBeats> beats_;  // shared with the exit handler
  std::optional<PeerMemory> memory_;
  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
  Clock::time_point last_look_;
  Clock::duration idle_{};
  std::vector<MPI_Request> requests_;
  std::vector<Pending> pending_;  // pending_[i] belongs to requests_[i]
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace linerate::comm
