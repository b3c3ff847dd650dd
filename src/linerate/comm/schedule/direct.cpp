#include "linerate/comm/schedule/direct.hpp"

#include <algorithm>
#include <cstdint>

#include "linerate/comm/reduce_kernel.hpp"

namespace linerate::comm {
namespace {

/// Where another rank finds this rank's part of its block, and this rank's block when it is whole.
struct Places {
  std::uint64_t part = 0, whole = 0;
  std::uint64_t part_bytes = 0, whole_bytes = 0;
};

std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

class Direct {
 public:
  Direct(Channel& channel, ChunkPool& pool, const BlockJob& job)
      : channel_(channel),
        pool_(pool),
        job_(job),
        size_(channel.size()),
        rank_(channel.rank()),
        own_(job.blocks[index(rank_)]),
        mine_(index(size_)),
        theirs_(index(size_)),
        places_(index(size_)),
        reduced_(index(size_)),
        gathered_(index(size_)) {}

  void run() {
    post();
    if (job_.reduces) {
      for (int step = 1; step < size_; ++step) check(peer(step));
      reduce_own_block();
      tell(reduced_);
    }
    if (job_.gathers) {
      for (int step = 1; step < size_; ++step) gather_from(peer(step));
      tell(gathered_);
    }
    // Until these have come, others may read this rank's memory.
    for (int step = 1; step < size_; ++step)
      wait(channel_, (job_.gathers ? gathered_ : reduced_)[index(peer(step))].received);
    for (int step = 1; step < size_; ++step)
      for (Messages* messages : {&places_, &reduced_, &gathered_})
        wait(channel_, (*messages)[index(peer(step))].sent);
  }

 private:
  struct Message {
    Transfer sent, received;
  };
  using Messages = std::vector<Message>;  // by the other rank

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  int peer(int step) const { return (rank_ + step) % size_; }

  /// The places; and receives for the flags that will follow them. A rank that has another's places
  /// also knows that the other's input is there.
  void post() {
    for (int step = 1; step < size_; ++step) {
      const int other = peer(step);
      const std::size_t o = index(other);
      mine_[o] = {address(job_.blocks[o].input), address(own_.output), job_.blocks[o].bytes,
                  own_.bytes};
      channel_.receive(other, &theirs_[o], sizeof(Places), places_[o].received);
      if (job_.reduces) channel_.receive(other, &flag_in_, 1, reduced_[o].received);
      if (job_.gathers) channel_.receive(other, &flag_in_, 1, gathered_[o].received);
      channel_.send(other, &mine_[o], sizeof(Places), places_[o].sent);
    }
  }
  void tell(Messages& messages) {
    for (int step = 1; step < size_; ++step)
      channel_.send(peer(step), &flag_out_, 1, messages[index(peer(step))].sent);
  }

  /// Waits for the places of `other`.
  void check(int other) {
    const std::size_t o = index(other);
    wait(channel_, places_[o].received);
    if (theirs_[o].part_bytes != own_.bytes || theirs_[o].whole_bytes != job_.blocks[o].bytes)
      channel_.fail(
          "an array of another size was announced than is expected: the ranks run "
          "different operations here (turn checked mode on)");
  }

  /// What other ranks add is read into a chunk that stays in the cache.
  void reduce_own_block() {
    std::byte* theirs = pool_.take();
    const auto element = static_cast<std::size_t>(size_of(job_.dtype));
    const std::size_t chunk = pool_.chunk_bytes() / element * element;
    for (std::size_t at = 0; at < own_.bytes; at += chunk) {
      const std::size_t bytes = std::min(chunk, own_.bytes - at);
      const std::byte* sum = own_.input + at;
      for (int step = 1; step < size_; ++step) {
        channel_.read(peer(step), theirs_[index(peer(step))].part + at, theirs, bytes);
        reduce_into(own_.output + at, sum, theirs, bytes / element, job_.dtype, job_.op);
        sum = own_.output + at;
      }
    }
    pool_.give_back(theirs);
  }

  void gather_from(int other) {
    const Block& block = job_.blocks[index(other)];
    if (job_.reduces) {
      wait(channel_, reduced_[index(other)].received);
    } else {
      check(other);
    }
    channel_.read(other, theirs_[index(other)].whole, block.output, block.bytes);
  }

  Channel& channel_;
  ChunkPool& pool_;
  const BlockJob& job_;
  int size_, rank_;
  const Block& own_;
  std::vector<Places> mine_, theirs_;  // by the other rank
  Messages places_, reduced_, gathered_;
  std::byte flag_in_{}, flag_out_{};
};

}  // namespace

void run_direct(Channel& channel, ChunkPool& pool, const BlockJob& job) {
  Direct(channel, pool, job).run();
}

}  // namespace linerate::comm
