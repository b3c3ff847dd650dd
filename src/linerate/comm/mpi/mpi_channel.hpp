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

#include "linerate/comm/channel.hpp"
#include "linerate/comm/message_tag.hpp"
#include "linerate/comm/mpi/mpi_beats.hpp"
#include "linerate/comm/mpi/one_world.hpp"
#include "linerate/comm/mpi/peer_memory.hpp"
#include "linerate/comm/turns.hpp"

namespace linerate::comm {

class MpiChannel final : public Transport {
 public:
  MpiChannel(MPI_Comm world, Clock::duration timeout, OneWorld claim);
  ~MpiChannel() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "mpi"; }
  std::size_t chunk_bytes() const override { return std::size_t{256} << 10; }
  std::size_t latency_bytes() const override { return std::size_t{32} << 10; }

  void send(int peer, const void* data, std::size_t bytes, Transfer& transfer) override;
  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) override;
  void poll() override { test(); }
  void wait_some() override;
  bool can_read_peers() const override { return memory_.has_value(); }
  bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) override;
  [[noreturn]] void fail(const std::string& reason) override;
  [[noreturn]] void fail_with(int peer, const std::string& seen) override;

  void submitted(std::span<const int> members) override { beats_->submitted(members); }
  void abort(const std::string& reason) override;
  void set_busy(std::optional<BusyNote> note) override { beats_->set_busy(std::move(note)); }
  void begin(const Purpose& purpose) override;
  void end() override { beats_->end(); }
  void give_up(const std::string& reason) override;
  void take_back() override { turns_.take_back(purpose_.members); }
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
  /// A message that has met no receive, and may yet.
  struct Suspect {
    int tag = 0;
    std::uint64_t turn = 0;
    Clock::time_point moved{};  // when anything moved last
    Clock::time_point seen{};
    int looks = 0, beats = 0;
  };

  int tag(int peer) const;
  int payload_tag(int peer) const;
  void posted(int code, const char* call);
  bool test();
  void keep_unfinished();
  [[noreturn]] void blame(const std::string& problem);
  void look_after_peers(Clock::time_point now);
  bool look_for_strays(Clock::time_point now);
  bool is_stray(int peer, int tag, Clock::time_point now);
  void serve_beats(Clock::time_point now);
  void abandon();
  void hear_abort();

  OneWorld claim_;  // first: given back when everything else is gone
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  Clock::duration timeout_;
  std::shared_ptr<MpiBeats> beats_;  // shared with the exit handler
  std::optional<PeerMemory> memory_;
  Purpose purpose_;
  Turns turns_;
  MessageTag tag_;
  std::vector<Suspect> suspects_;  // by rank
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
