// The ring algorithm works as follows. The array is cut into P blocks. In each step a rank sends
// one block to its right neighbour while it receives another from its left one. In the reduce half,
// it adds its own part to the block that arrives and sends the sum in the next step. After P - 1
// steps it has one block that is whole. In the gather half, whole blocks go round in the same way.
// With three ranks:
//
//   step       rank 0            rank 1            rank 2
//   reduce 0   sends 2, gets 1   sends 0, gets 2   sends 1, gets 0
//   reduce 1   sends 1, gets 0   sends 2, gets 1   sends 0, gets 2
//   gather 0   sends 0, gets 2   sends 1, gets 0   sends 2, gets 1
//   gather 1   sends 2, gets 1   sends 0, gets 2   sends 1, gets 0
//
// Block 0 begins at rank 1. Rank 2 adds its part after reduce 0, and rank 0 adds its own after
// reduce 1. Then block 0 is whole at rank 0. Every rank sends 2 (P - 1) / P of the array, which is
// the least possible.
//
// Blocks are cut into chunks, and kLanes chunks of each block form a piece. A rank walks its
// messages in the order (piece, step, lane). A message depends on the message of the same lane one
// step before, which is kLanes messages back. That distance hides latency and late ranks. And only
// a few pieces are in scratch memory at a time.
#include "linerate/comm/schedule/ring.hpp"

#include <algorithm>
#include <array>
#include <deque>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
namespace {

constexpr std::int64_t kLanes = 4;    // chunks of one block in a piece
constexpr std::size_t kReceives = 4;  // posted ahead
constexpr std::size_t kSends = 4;     // handed to the transport at once
constexpr std::size_t kScratch =
    24;  // chunks of partial sums; > 2 kLanes + kReceives + kSends, else it could jam

/// Names one message of the ring; ordered as they are sent.
struct Key {
  std::int64_t piece = 0;
  int step = 0;
  std::int64_t lane = 0;
  auto operator<=>(const Key&) const = default;
};

class Ring {
 public:
  Ring(Channel& channel, ChunkPool& pool, const BlockJob& job)
      : channel_(channel), pool_(pool), job_(job), size_(channel.size()), rank_(channel.rank()) {
    reduce_steps_ = job.reduces ? size_ - 1 : 0;
    steps_ = reduce_steps_ + (job.gathers ? size_ - 1 : 0);
    for (const ArrayBlock& block : job.blocks) {
      pieces_ = std::max(pieces_, ceil_divide(chunks(block), kLanes));
    }
    next_send_ = first(&Ring::sent_block);
    next_receive_ = next_processed_ = first(&Ring::received_block);
  }

  void run() {
    while (!finished()) {
      post_receives();
      post_sends();
      if (!receives_.empty() && receives_.front().transfer.done) {
        process(receives_.front());
        receives_.pop_front();
        retire_sends();
        channel_.poll();
      } else if (!retire_sends() && !finished()) {
        channel_.wait_some();
      }
    }
  }

 private:
  struct Message {
    Key key;
    Transfer transfer;
    std::byte* scratch = nullptr;  // owned by the pool, or null
  };
  struct Partial {
    Key key;  // of the send it is for
    std::byte* data;
  };
  using BlockOf = int (Ring::*)(int step) const;

  static std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
  int wrap(int rank) const { return ((rank % size_) + size_) % size_; }
  std::int64_t chunks(const ArrayBlock& block) const {
    return ceil_divide(static_cast<std::int64_t>(block.bytes),
                       static_cast<std::int64_t>(pool_.chunk_bytes()));
  }

  // Reduce step s: block r - s - 1 leaves rank r, and block r - s - 2 arrives. After P - 1 steps
  // rank r has block r. Gather step s: block r - s leaves, and block r - s - 1 arrives. Both are
  // one sequence, because the block that arrives in a step leaves in the next.
  int sent_block(int step) const { return wrap(rank_ - step - (job_.reduces ? 1 : 0)); }
  int received_block(int step) const { return sent_block(step + 1); }

  std::int64_t lanes(const Key& key, BlockOf block_of) const {
    const ArrayBlock& block = job_.blocks[to_index((this->*block_of)(key.step))];
    return std::clamp<std::int64_t>(chunks(block) - key.piece * kLanes, 0, kLanes);
  }
  /// Moves on past steps in which the block has no chunk; the end is {pieces_, 0, 0}.
  Key settle(Key key, BlockOf block_of) const {
    while (key.piece < pieces_ && key.lane >= lanes(key, block_of)) {
      key.lane = 0;
      if (++key.step >= steps_) key = {key.piece + 1, 0, 0};
    }
    return key;
  }
  Key first(BlockOf block_of) const { return settle({}, block_of); }
  Key after(Key key, BlockOf block_of) const {
    ++key.lane;
    return settle(key, block_of);
  }
  bool ended(const Key& key) const { return key.piece >= pieces_; }
  bool finished() const { return ended(next_processed_) && ended(next_send_) && sends_.empty(); }

  std::size_t offset(const Key& key) const {
    return to_index(key.piece * kLanes + key.lane) * pool_.chunk_bytes();
  }
  std::size_t bytes(const Key& key, const ArrayBlock& block) const {
    return std::min(pool_.chunk_bytes(), block.bytes - offset(key));
  }

  void post_receives() {
    while (receives_.size() < kReceives && !ended(next_receive_) && may_receive(next_receive_)) {
      const Key key = next_receive_;
      const ArrayBlock& block = job_.blocks[to_index(received_block(key.step))];
      Message& message = receives_.emplace_back();
      message.key = key;
      std::byte* target = block.output == nullptr ? nullptr : block.output + offset(key);
      if (key.step < reduce_steps_) {
        target = message.scratch = take_scratch();
      }
      channel_.receive(wrap(rank_ - 1), target, bytes(key, block), message.transfer);
      next_receive_ = after(key, &Ring::received_block);
    }
  }

  /// Input and output may be the same memory. So a gathered chunk may land only after this rank's
  /// part in that place was read. It is read when it is sent (the block of reduce step 0), or when
  /// it is added to a chunk that has arrived.
  bool may_receive(const Key& key) const {
    if (key.step < reduce_steps_) return scratch_used_ < kScratch;
    if (!job_.reduces) return true;
    const int gather_step = key.step - reduce_steps_;
    if (gather_step == 0) return oldest_unsent() > Key{key.piece, 0, key.lane};
    return next_processed_ > Key{key.piece, gather_step - 1, key.lane};
  }
  Key oldest_unsent() const { return sends_.empty() ? next_send_ : sends_.front().key; }

  void post_sends() {
    while (sends_.size() < kSends && !ended(next_send_) && may_send(next_send_)) {
      const Key key = next_send_;
      const ArrayBlock& block = job_.blocks[to_index(sent_block(key.step))];
      Message& message = sends_.emplace_back();
      message.key = key;
      const std::byte* source;
      if (key.step >= reduce_steps_) {
        source = block.output + offset(key);
      } else if (key.step == 0) {
        source = block.input + offset(key);
      } else {
        source = message.scratch = partials_.front().data;
        partials_.pop_front();
      }
      channel_.send(wrap(rank_ + 1), source, bytes(key, block), message.transfer);
      next_send_ = after(key, &Ring::sent_block);
    }
  }
  bool may_send(const Key& key) const {
    return key.step == 0 || next_processed_ > Key{key.piece, key.step - 1, key.lane};
  }

  void process(const Message& message) {
    const Key key = message.key;
    next_processed_ = after(key, &Ring::received_block);
    if (key.step >= reduce_steps_) return;
    const ArrayBlock& block = job_.blocks[to_index(received_block(key.step))];
    const bool last = key.step == reduce_steps_ - 1;
    std::byte* target = last ? block.output + offset(key) : message.scratch;
    const std::size_t elements = bytes(key, block) / to_index(size_of(job_.dtype));
    reduce_into(target, message.scratch, block.input + offset(key), elements, job_.dtype, job_.op);
    if (last) {
      drop_scratch(message.scratch);
    } else {
      partials_.push_back({{key.piece, key.step + 1, key.lane}, message.scratch});
    }
  }

  bool retire_sends() {
    bool any = false;
    while (!sends_.empty() && sends_.front().transfer.done) {
      if (sends_.front().scratch != nullptr) drop_scratch(sends_.front().scratch);
      sends_.pop_front();
      any = true;
    }
    return any;
  }

  std::byte* take_scratch() {
    ++scratch_used_;
    return pool_.take();
  }
  void drop_scratch(std::byte* chunk) {
    --scratch_used_;
    pool_.give_back(chunk);
  }

  Channel& channel_;
  ChunkPool& pool_;
  const BlockJob& job_;
  int size_, rank_, reduce_steps_ = 0, steps_ = 0;
  std::int64_t pieces_ = 0;
  Key next_send_, next_receive_, next_processed_;
  std::deque<Message> receives_, sends_;  // deque: a Transfer must not move while it is under way
  std::deque<Partial> partials_;
  std::size_t scratch_used_ = 0;
};

}  // namespace

void run_ring(Channel& channel, ChunkPool& pool, const BlockJob& job) {
  Ring(channel, pool, job).run();
}

}  // namespace linerate::comm
