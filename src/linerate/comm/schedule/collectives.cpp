#include "linerate/comm/schedule/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {

Run RunCursor::take(std::size_t most) {
  while (done_ == runs_.front().bytes) runs_ = runs_.subspan(1), done_ = 0;
  const Run& run = runs_.front();
  const Run part{run.data + done_, std::min(most, run.bytes - done_), run.scale};
  done_ += part.bytes;
  return part;
}

void RunCursor::skip(std::size_t bytes) {
  while (bytes > 0) bytes -= take(bytes).bytes;
}

std::vector<Run> runs_of(std::span<const Piece> pieces, DType dtype, std::size_t begin,
                         std::size_t bytes) {
  std::vector<Run> runs;
  std::size_t at = 0;  // where the piece begins
  for (const Piece& piece : pieces) {
    const auto size = to_index(piece.values.count.value * size_of(dtype));
    const std::size_t from = std::max(at, begin), to = std::min(at + size, begin + bytes);
    if (from < to)
      runs.push_back(
          {static_cast<const std::byte*>(piece.values.data) + (from - at), to - from, piece.scale});
    at += size;
  }
  return runs;
}

void write_scaled(std::byte* to, RunCursor from, std::size_t bytes, DType dtype) {
  const auto element = to_index(size_of(dtype));
  for (std::size_t done = 0; done < bytes;) {
    const Run run = from.take(bytes - done);
    if (run.scale != 1)
      scale_into(to + done, run.data, run.scale, run.bytes / element, dtype);
    else if (to + done != run.data)
      std::memcpy(to + done, run.data, run.bytes);
    done += run.bytes;
  }
}

void write_pieces(const Buffer& array, std::span<const Piece> pieces) {
  const auto bytes = to_index(array.count.value * size_of(array.dtype));
  const std::vector<Run> runs = runs_of(pieces, array.dtype, 0, bytes);
  write_scaled(static_cast<std::byte*>(array.data), RunCursor(runs), bytes, array.dtype);
}

// Reduce and gather by reads of other ranks' memory. As many bytes move as in a ring. But each rank
// works for milliseconds at a time and waits for the others at most three times. So progress
// threads rarely wake up during computation. It goes as follows.
// - Every rank sends every other the addresses of its part of that rank's block, and of its own
//   block's result (Places).
// - Rank r reads the parts of block r from all ranks, adds them up chunk by chunk, and tells all
//   "reduced".
// - It waits for "reduced" of each other rank, and reads that rank's block.
// - It tells "finished", and waits until all others have finished, because until then they may read
//   its memory.
//
// An example with three ranks and an array of 3 MB, blocks of 1 MB. Rank 1 reads block 1 of ranks 2
// and 0 (2 MB), adds its own, and has the sum. Then it reads blocks 2 and 0 from ranks 2 and 0. So
// it has read 4 MB, as many bytes as it would receive in a ring.
//
// The kernel may refuse reads in mid-run: seccomp, a change of privileges. A rank that may not read
// asks for each chunk by a message, and the other rank answers while it waits for something itself.
// Each "finished" tells whether its sender was denied. All ranks read the same words, so all stop
// reading from the next collective on.

namespace {

/// The addresses at which another rank finds this rank's part of its block, and this rank's block
/// when it is whole.
struct Places {
  std::uint64_t part = 0, whole = 0;
  std::uint64_t part_bytes = 0, whole_bytes = 0;
  std::uint64_t part_runs = 0;  // above 0: `part` is where that many Runs stand, not the bytes
};

/// The messages after the places. A rank that may not read asks for a chunk, which comes as a
/// message of its own after the answer.
struct Word {
  enum class Kind : std::uint8_t { reduced, finished, ask_part, ask_whole, answer };
  std::uint64_t bits = 0;

  Word() = default;
  Word(Kind kind, bool denied, std::uint64_t offset = 0)
      : bits(offset << 8 | std::uint64_t{denied} << 7 | static_cast<std::uint64_t>(kind)) {}
  Kind kind() const { return static_cast<Kind>(bits & 0x7f); }
  bool denied() const { return (bits >> 7 & 1) != 0; }  // the sender could not read all
  std::uint64_t offset() const { return bits >> 8; }    // in the block, bytes
};

std::uint64_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
/// A pointer into another rank's memory, which only read() may follow.
const std::byte* pointer(std::uint64_t address) {
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(address));
}

class Direct {
 public:
  Direct(Channel& channel, ChunkPool& pool, const BlockJob& job)
      : channel_(channel),
        pool_(pool),
        job_(job),
        size_(channel.size()),
        rank_(channel.rank()),
        own_(job.blocks[index(rank_)]),
        peers_(index(size_)) {
    const auto element = to_index(size_of(job.dtype));
    chunk_ = pool.chunk_bytes() / element * element;
  }

  void run() {
    post();
    if (job_.reduces) {
      for (int step = 1; step < size_; ++step) check(peer(step));
      reduce_own_block();
      if (job_.gathers) tell(Word::Kind::reduced);
    }
    if (job_.gathers)
      for (int step = 1; step < size_; ++step) gather_from(peer(step));
    tell(Word::Kind::finished);
    // Until all have finished, others may read this rank's memory, or ask for it.
    bool any_denied = denied_;
    for (int step = 1; step < size_; ++step) {
      const Peer& other = at(peer(step));
      until([&] { return other.finished; });
      any_denied = any_denied || other.denied;
    }
    for (const Outgoing& sent : sent_) channel_.wait_for(sent.transfer);
    for (int step = 1; step < size_; ++step) channel_.wait_for(at(peer(step)).places_sent);
    if (any_denied) channel_.stop_reading();  // every rank has read the same words
  }

 private:
  struct Peer {
    Places mine, theirs;
    std::vector<Run> runs;  // of theirs.part, addresses in its memory
    Transfer places_sent, places_received;
    Word word;
    Transfer word_received;
    bool listening = false;  // for a word
    bool reduced = false, finished = false, denied = false;
    bool asked = false, answered = false;  // for a chunk
  };
  struct Outgoing {
    Word word;
    Transfer transfer;
    std::vector<std::byte> scaled{};  // a chunk that lies nowhere as it is sent
  };

  static std::size_t index(int rank) { return to_index(rank); }
  int peer(int step) const { return (rank_ + step) % size_; }
  Peer& at(int rank) { return peers_[index(rank)]; }

  /// Posts the places, and a receive for the first word after them. A rank that has another's
  /// places also learns by them that the other's input is there.
  void post() {
    for (int step = 1; step < size_; ++step) {
      const int other = peer(step);
      Peer& p = at(other);
      const ArrayBlock& block = job_.blocks[index(other)];
      const bool in_runs = !block.runs.empty();
      p.mine = {in_runs ? address(block.runs.data()) : address(block.input), address(own_.output),
                block.bytes, own_.bytes, block.runs.size()};
      channel_.receive(other, &p.theirs, sizeof(Places), p.places_received);
      channel_.send(other, &p.mine, sizeof(Places), p.places_sent);
      listen(other);
    }
  }
  void listen(int other) {
    at(other).listening = true;
    channel_.receive(other, &at(other).word, sizeof(Word), at(other).word_received);
  }
  void say(int other, Word word) {
    Outgoing& out = sent_.emplace_back(word);
    channel_.send(other, &out.word, sizeof(Word), out.transfer);
  }
  void tell(Word::Kind kind) {
    for (int step = 1; step < size_; ++step) say(peer(step), {kind, denied_});
  }

  /// Sleeps until `happened`, and meanwhile answers ranks that ask.
  template <typename Condition>
  void until(const Condition& happened) {
    while (!happened()) {
      bool heard = false;
      for (int step = 1; step < size_; ++step) {
        Peer& p = at(peer(step));
        if (!p.listening || !p.word_received.done) continue;
        p.listening = false;
        heard = true;
        hear(peer(step));
      }
      if (!heard) channel_.wait_some();
    }
  }

  void hear(int other) {
    Peer& p = at(other);
    switch (p.word.kind()) {
      case Word::Kind::reduced:
        p.reduced = true;
        return listen(other);
      case Word::Kind::finished:
        p.finished = true;  // its last word, but for an answer
        p.denied = p.word.denied();
        if (p.asked) listen(other);
        return;
      case Word::Kind::ask_part:
        answer(other, job_.blocks[index(other)]);
        return listen(other);
      case Word::Kind::ask_whole:
        answer(other, {own_.output, nullptr, own_.bytes});
        return listen(other);
      case Word::Kind::answer:  // whoever asked takes what follows, then listens again
        p.answered = true;
        p.asked = false;
        return;
    }
  }
  /// Sends a chunk to a rank that has asked for it. This rank's part of a sum is sent scaled.
  void answer(int other, const ArrayBlock& block) {
    const std::size_t offset = at(other).word.offset();
    const std::size_t bytes = std::min(chunk_, block.bytes - offset);
    say(other, {Word::Kind::answer, denied_});
    Outgoing& out = sent_.emplace_back();
    if (!block.runs.empty()) {
      out.scaled.resize(bytes);
      RunCursor cursor(block.runs);
      cursor.skip(offset);
      write_scaled(out.scaled.data(), cursor, bytes, job_.dtype);
    }
    channel_.send(other, block.runs.empty() ? block.input + offset : out.scaled.data(), bytes,
                  out.transfer);
  }

  /// Reads bytes that lie together or in runs. False if this rank may not read.
  bool read(int other, RunCursor from, std::byte* into, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
      const Run run = from.take(bytes - done);
      denied_ = denied_ || !channel_.read(other, address(run.data), into + done, run.bytes);
      if (denied_) return false;
      done += run.bytes;
    }
    return true;
  }

  /// Gets a chunk from `other` by asking for it.
  void ask(int other, Word::Kind what, std::size_t offset, std::byte* into, std::size_t bytes) {
    Peer& p = at(other);
    if (p.finished) listen(other);
    p.asked = true;
    say(other, {what, denied_, offset});
    until([&] { return p.answered; });
    p.answered = false;
    Transfer received;
    channel_.receive(other, into, bytes, received);
    until([&] { return received.done; });
    if (!p.finished) listen(other);
  }

  /// Waits for the places of `other`.
  void check(int other) {
    Peer& p = at(other);
    channel_.wait_for(p.places_received);
    if (p.theirs.part_bytes != own_.bytes ||
        p.theirs.whole_bytes != job_.blocks[index(other)].bytes)
      channel_.fail(
          fmt::format("rank {} announced an array of another size than is expected", other));
  }

  /// Learns the runs of `other`'s part of this rank's block; of no use if reading is denied.
  void learn_runs(int other) {
    Peer& p = at(other);
    p.runs.assign(std::max<std::size_t>(p.theirs.part_runs, 1),
                  {pointer(p.theirs.part), own_.bytes, 1});
    if (p.theirs.part_runs == 0 || denied_) return;
    denied_ = !channel_.read(other, p.theirs.part, p.runs.data(), p.runs.size() * sizeof(Run));
  }

  /// Sums this rank's block. Other ranks' parts are read into a chunk that stays in the cache. The
  /// order is own, rank + 1, rank + 2, .... All ranks read this one sum, so all have the same bits.
  void reduce_own_block() {
    for (int step = 1; step < size_; ++step) learn_runs(peer(step));
    std::byte* chunk = pool_.take();
    const Run whole{own_.input, own_.bytes, 1};
    RunCursor own = own_.runs.empty() ? RunCursor({&whole, 1}) : RunCursor(own_.runs);
    std::vector<RunCursor> theirs(index(size_));
    for (std::size_t r = 0; r < theirs.size(); ++r) theirs[r] = RunCursor(peers_[r].runs);
    for (std::size_t done = 0; done < own_.bytes; done += chunk_) {
      const std::size_t bytes = std::min(chunk_, own_.bytes - done);
      std::byte* const sum = own_.output + done;
      const Run first{sum, bytes, 1}, arrived{chunk, bytes, 1};
      for (int step = 1; step < size_; ++step) {
        RunCursor& from = theirs[index(peer(step))];
        const bool has_read = !denied_ && read(peer(step), from, chunk, bytes);
        if (!has_read) ask(peer(step), Word::Kind::ask_part, done, chunk, bytes);
        add(sum, step == 1 ? own : RunCursor({&first, 1}), chunk,
            has_read ? from : RunCursor({&arrived, 1}), bytes);
        if (has_read) from.skip(bytes);
      }
      own.skip(bytes);
    }
    pool_.give_back(chunk);
  }

  /// sum[bytes] = a + b, each run times its scale. b's bytes are in `chunk`; its cursor gives only
  /// lengths and scales.
  void add(std::byte* sum, RunCursor a, const std::byte* chunk, RunCursor b, std::size_t bytes) {
    const auto element = to_index(size_of(job_.dtype));
    for (std::size_t done = 0; done < bytes;) {
      const Run theirs = b.peek(bytes - done);
      const Run own = a.take(theirs.bytes);
      b.skip(own.bytes);
      const std::size_t n = own.bytes / element;
      if (own.scale == 1 && theirs.scale == 1)
        reduce_into(sum + done, own.data, chunk + done, n, job_.dtype, job_.op);
      else
        add_scaled_into(sum + done, own.data, own.scale, chunk + done, theirs.scale, n, job_.dtype);
      done += own.bytes;
    }
  }

  void gather_from(int other) {
    const ArrayBlock& block = job_.blocks[index(other)];
    if (job_.reduces) {
      until([&] { return at(other).reduced; });
    } else {
      check(other);
    }
    if (!denied_ && channel_.read(other, at(other).theirs.whole, block.output, block.bytes)) return;
    denied_ = true;
    for (std::size_t done = 0; done < block.bytes; done += chunk_)
      ask(other, Word::Kind::ask_whole, done, block.output + done,
          std::min(chunk_, block.bytes - done));
  }

  Channel& channel_;
  ChunkPool& pool_;
  const BlockJob& job_;
  int size_, rank_;
  const ArrayBlock& own_;
  std::size_t chunk_ = 0;
  bool denied_ = false;
  std::vector<Peer> peers_;    // by rank
  std::deque<Outgoing> sent_;  // deque: what is under way must not move
};

// The ring algorithm (Patarasuk & Yuan 2009) works as follows. The array is cut into P blocks. In
// each step a rank sends one block to its right neighbour while it receives another from its left
// one. In the reduce half, it adds its own part to the block that arrives and sends the sum in the
// next step. After P - 1 steps it has one block that is whole. In the gather half, whole blocks go
// round in the same way. With three ranks:
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
      if (key.step < reduce_steps_) target = message.scratch = take_scratch();
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
        source = message.scratch = partials_.front();
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
    if (last)
      drop_scratch(message.scratch);
    else
      partials_.push_back(message.scratch);
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
  std::deque<std::byte*> partials_;       // sums to send, in the order of their messages
  std::size_t scratch_used_ = 0;
};

}  // namespace

void run_blocks(Channel& channel, ChunkPool& pool, const BlockJob& job) {
  if (channel.size() == 1) return;
  if (channel.reads_peers()) return Direct(channel, pool, job).run();
  Ring(channel, pool, job).run();
}

}  // namespace linerate::comm
