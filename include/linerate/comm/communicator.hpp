// A network that is slower than the one that is there, for anyone who wants to try it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/buffer.hpp"
#include "linerate/core/units.hpp"

namespace linerate::comm {

/// From now on every rank that joins a job in this process sends as over a link of this rate, in
/// bytes per second. (A rank joins by make_world, run_ranks or make_world_of_group.) Absent: as
/// fast as it can, as before the first call.
///
/// A rank has one link, whatever communicators and groups it sends through. What counts are the
/// frames of TCP over Ethernet with their headers. Latency stays what it is. Ranks of one host read
/// none of each other's memory, since nothing would pace that. Call it alike on all ranks. Any
/// thread. Throws UsageError unless the rate is at least 1 bit/s.
void set_link(std::optional<BytesPerSecond> rate);

/// The rate of the last set_link().
[[nodiscard]] std::optional<BytesPerSecond> link_rate();

// "I am alive, and busy for a while". A rank makes a Busy before work that keeps it from the next
// collective for longer than the timeout.

/// While it exists the rank that made it is not late (Communicator::busy). Moves, and may outlive
/// the communicator.
/// Thread safety: one thread at a time; that may be another than the one that made it.
class [[nodiscard]] Busy {
 public:
  Busy() = default;  // says nothing
  /// Calls `end` once, when the work is done.
  explicit Busy(std::function<void()> end)
      : end_(nullptr, [end = std::move(end)](void*) { end(); }) {}
  /// Takes over what the other says.
  Busy(Busy&&) = default;
  /// Ends this one, and takes over what the other says.
  Busy& operator=(Busy&&) = default;

  /// The work is done: from here on the timeout counts again.
  void finish() { end_.reset(); }

 private:
  std::shared_ptr<void> end_;  // its deleter calls `end`
};

// Moves bytes between ranks. Every operation is asynchronous and collective: all ranks submit the
// same operations in the same order. Knows element types and counts, never gradients.

/// When a collective really ran, on std::chrono::steady_clock, in nanoseconds.
struct WorkTimes {
  std::int64_t start_ns = 0;  // first message handed to the transport
  std::int64_t end_ns = 0;    // result complete in the caller's buffer
};

/// One submitted collective: pending, then done or failed, once and for all.
///
/// The last handle of a pending Work waits for it, as the future of std::async does. So declare the
/// handle after the memory; then the memory outlives its use. If an exception unwinds past the last
/// handle, it first ends the run for every rank (Communicator::abort). Thread safety: any thread,
/// at any time.
class Work {
 public:
  virtual ~Work() = default;
  /// Sleeps until done. Throws the CommError of a failed operation, naming operation, rank and
  /// peer.
  virtual void wait() = 0;
  /// Whether it is done or failed. Does not wait.
  virtual bool done() const = 0;
  /// Valid once done.
  virtual WorkTimes times() const = 0;
  /// Calls `action` once it is done or failed: from the thread that moved the bytes, which waits
  /// meanwhile, or at once if that has happened. `action` throws nothing. It drops no handle of
  /// another pending Work, which would end the run; it may have this Work's handle. One action for
  /// each Work.
  virtual void on_done(std::function<void()> action) = 0;
};
/// Keep it until the result is needed.
using WorkPtr = std::shared_ptr<Work>;

/// Options of ranks that are threads; WorldOptions has those of MPI.
struct CommunicatorOptions {
  /// A rank silent for this long fails every pending operation on every survivor.
  Duration timeout{300};
  /// Compare (sequence, operation, dtype, count, name) across ranks before each collective.
  bool checked = false;
  /// How long ranks that are processes may take to come together. Absent: `timeout`, and at least
  /// half a minute, since starting on a loaded machine takes seconds by itself.
  std::optional<Duration> start_timeout{};
};

/// The kinds of collectives.
enum class CollectiveCall : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_gather_v,
  all_to_all,
  broadcast,
  barrier
};

/// A collective, as the functions of Communicator submit it.
/// Thread safety: a value.
struct Submission {
  CollectiveCall call = CollectiveCall::barrier;  // which function
  std::string name{};                             // as given
  ConstBuffer input{nullptr, {0}, DType::u8};     // the output, if it is in place
  Buffer output{nullptr, {0}, DType::u8};         // of sums of pieces: the array
  Reduce op = Reduce::sum;                        // of reductions
  int root = 0;                                   // of a broadcast
  std::vector<std::int64_t> counts{};             // of all_gather_v
  std::optional<std::vector<Piece>> pieces{};     // of sums of pieces
};

/// The colour of a rank that takes part in no group; any negative one says the same.
inline constexpr int kNoGroup = -1;

/// Bytes that this rank handed to and took from the transport since construction, payloads only.
/// Operations of a communicator and of the groups split from it count.
struct Traffic {
  Bytes sent{};      // handed to the transport
  Bytes received{};  // taken from it
};

/// Operations start in the order of submission, over all communicators split from one. `name`
/// appears in errors and, in checked mode, must agree. Thread safety: any thread may call anything,
/// and an operation is submitted as one. But ranks have to submit in one order, so a program with
/// several threads that submit has to order them. rank(), size(), busy(), abort() and traffic()
/// need no order.
class Communicator {
 public:
  /// Finishes what was submitted through this communicator; if an exception unwinds past it and
  /// something is pending, ends the run first, as abort(). The rank leaves the job when the last
  /// communicator of the family is gone.
  virtual ~Communicator() = default;

  /// This rank's number, from 0.
  virtual int rank() const = 0;
  /// How many ranks there are.
  virtual int size() const = 0;
  virtual std::string transport() const = 0;  // "thread", "mpi", "nccl"

  /// In place: buffer[n] becomes the reduction over ranks, bitwise the same on every rank.
  [[nodiscard]] WorkPtr all_reduce(Buffer buffer, Reduce op, std::string name);
  /// input[size * n] -> output[n]: block r of the reduction on rank r. In place when output is
  /// block rank() of input.
  [[nodiscard]] WorkPtr reduce_scatter(ConstBuffer input, Buffer output, Reduce op,
                                       std::string name);
  /// Sums of pieces that lie anywhere in this rank's memory, one after the other. The bits are
  /// those of a sum of arrays: every rank writes its pieces to array[n], each times its scale in
  /// the array's type. reduce_scatter is in place, n = size * block, and the array's other blocks
  /// are garbage afterwards. A piece may lie at its own place in the array, but not at another.
  [[nodiscard]] WorkPtr all_reduce(std::vector<Piece> pieces, Buffer array, std::string name);
  /// Each rank gets its block of the same sum.
  [[nodiscard]] WorkPtr reduce_scatter(std::vector<Piece> pieces, Buffer array, std::string name);
  /// Whether large sums of pieces read them in place. Else they are first written to the array,
  /// which a caller that computes should do itself. The same answer on every rank.
  virtual bool reads_pieces() const { return false; }
  /// input[n] -> output[size * n] in rank order. In place when input is block rank() of output.
  [[nodiscard]] WorkPtr all_gather(ConstBuffer input, Buffer output, std::string name);
  /// input[counts[rank()]] -> output[sum of counts]; counts[r] may be 0 and differ.
  [[nodiscard]] WorkPtr all_gather_v(ConstBuffer input, Buffer output,
                                     std::span<const std::int64_t> counts, std::string name);
  /// input[size * n], block r to rank r -> output[size * n], block r from rank r. Not in place.
  [[nodiscard]] WorkPtr all_to_all(ConstBuffer input, Buffer output, std::string name);
  /// The root's buffer[n] becomes every rank's.
  [[nodiscard]] WorkPtr broadcast(Buffer buffer, int root, std::string name);
  /// Done when every rank has called it.
  [[nodiscard]] WorkPtr barrier(std::string name);
  /// What each of the functions above submits.
  [[nodiscard]] virtual WorkPtr submit(Submission what) = 0;

  /// A communicator over the ranks that give the same colour >= 0, in the order of (key, rank
  /// here). Null for a rank that gives a negative colour (kNoGroup). Collective over this
  /// communicator and synchronous. The group starts in this one's mode (checked or not).
  ///
  /// All communicators split from one share its progress thread and its queue. So ranks submit
  /// their operations, of whatever communicator, in one order that all agree on. Else they wait for
  /// each other in a circle.
  ///
  /// Errors call the group by `name`. Throws UsageError if it is empty, and CommError on every rank
  /// here if the members of a group name it differently.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int colour, int key,
                                                            std::string name) = 0;

  /// Ends the run for every rank. From any thread, at any time; returns at once. All pending and
  /// later operations, on every communicator of the family, fail on every rank with a CommError
  /// "rank R ended the run: REASON". The first reason counts. This is for a rank that cannot go on
  /// while others wait for it. Otherwise they learn only that it left, or time out.
  virtual void abort(const std::string& reason) = 0;

  /// Tells the others that this rank is about to do work that may take longer than the timeout,
  /// such as "writing a checkpoint". While the guard exists and this process gives signs of life,
  /// the others wait for this rank, in whatever communicator of the family. Their timeout begins
  /// when the guard ends. A rank that is stopped, cut off or dead is silent, busy or not, and is
  /// named as usual.
  ///
  /// `at_most` bounds the excuse. After it the timeout counts again, and the error tells what kept
  /// the rank busy. Without it the others wait for as long as the process lives. Guards may nest
  /// and overlap: the longest counts. Not collective, from any thread. Throws UsageError unless
  /// `at_most` is a time above 0.
  [[nodiscard]] virtual Busy busy(std::string what, std::optional<Duration> at_most) = 0;
  /// The same without a bound.
  [[nodiscard]] Busy busy(std::string what) { return busy(std::move(what), std::nullopt); }

  /// Switches checked mode, at the same place in the order on every rank.
  virtual void set_checked(bool checked) = 0;
  /// The bytes that this rank moved so far.
  virtual Traffic traffic() const = 0;

  /// `wanted` for the first caller, "wanted (2)" for the second, and so on. It tells apart in
  /// errors the objects that use this communicator. Does not communicate: ranks that ask in one
  /// order get the same answers.
  [[nodiscard]] std::string unique_name(const std::string& wanted);

 private:
  std::mutex names_mutex_;
  std::map<std::string, int> names_;  // how often each was asked for
};

}  // namespace linerate::comm
