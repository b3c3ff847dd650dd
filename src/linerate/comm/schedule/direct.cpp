// Reduce and gather by reads of other ranks' memory. It goes as follows.
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
#include "linerate/comm/schedule/direct.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>

#include "linerate/comm/reduce_kernel.hpp"
#include "linerate/core/index.hpp"

namespace linerate::comm {
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
    for (const Outgoing& sent : sent_) wait(channel_, sent.transfer);
    for (int step = 1; step < size_; ++step) wait(channel_, at(peer(step)).places_sent);
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
    wait(channel_, p.places_received);
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

}  // namespace

void run_direct(Channel& channel, ChunkPool& pool, const BlockJob& job) {
  Direct(channel, pool, job).run();
}

}  // namespace linerate::comm
