// Some ranks of a channel, numbered anew. The schedules of a group send and receive over this. For
// example ranks 1 and 3 of four form a group. Rank 3 of the job is rank 1 here, and a send to peer
// 0 goes to rank 1 of the job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/channel.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

class GroupChannel final : public Channel {
 public:
  /// Rank i here is rank members[i] of `whole`, which outlives this; `rank` is this one's i.
  GroupChannel(Channel& whole, std::vector<int> members, int rank)
      : whole_(whole), members_(std::move(members)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::size_t chunk_bytes() const override { return whole_.chunk_bytes(); }
  std::size_t latency_bytes() const override { return whole_.latency_bytes(); }

  void send(int peer, const void* data, std::size_t bytes, Transfer& transfer) override {
    whole_.send(member(peer), data, bytes, transfer);
  }
  void receive(int peer, void* data, std::size_t bytes, Transfer& transfer) override {
    whole_.receive(member(peer), data, bytes, transfer);
  }
  void poll() override { whole_.poll(); }
  void wait_some() override { whole_.wait_some(); }
  void wait_for(const Transfer& transfer) override { whole_.wait_for(transfer); }
  bool read(int peer, std::uint64_t address, void* into, std::size_t bytes) override {
    return whole_.read(member(peer), address, into, bytes);
  }
  [[noreturn]] void fail(const std::string& reason) override {
    whole_.fail(reason);
    __builtin_unreachable();  // GCC does not believe the attribute of a virtual function
  }

 protected:
  /// Not reads_peers(): ranks outside of this group may have stopped reading in another group.
  bool can_read_peers() const override { return whole_.can_read_peers(); }

 private:
  int member(int rank) const { return members_[to_index(rank)]; }

  Channel& whole_;
  std::vector<int> members_;
  int rank_;
};

}  // namespace linerate::comm
