// An accelerator that PyTorch takes for one (PrivateUse1, "sim"), on which a test finds what a GPU
// would find. Kernels run at once on the CPU, whatever their stream. Clocks, not values, check that
// a GPU would have run them in the same order. So a missing wait is found in every run that uses
// what it is for.
//
// - The host may not touch a device's memory: it gets a SIGSEGV (memory.hpp).
// - Memory that the host frees goes at once to who asks next in the same stream (stream_pools.hpp).
// - What an operator reads and writes, byte by byte, has to be known to its stream: by the stream's
//   own order, by events, by what the host had waited for (order.hpp).
// - A copy to pinned memory arrives when the host has waited for it, and not before (copies.cpp).
// - What makes the host wait is noted with the task that does it (kernels.cpp).
// - Collectives run in streams of their own, as NCCL's do (streamed_backend.hpp).
// - Autograd runs on its threads for devices, one for each.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace linerate::simulated {

inline constexpr int kDevices = 4;
/// Streams of a device: 0 is the default one. Pools give 1..32 and, of high priority, 33..64 again
/// and again, as CUDA's do. Those of back ends follow.
inline constexpr int kPool = 32, kFirstInner = 2 * kPool + 1;

c10::Device device(int index);
/// Of the calling thread.
c10::Stream current_stream(int device);

/// A wait that the program asked for: an event's, or that for a collective's end.
struct AskedWait {
  int stream = 0;         // that waits; of the host: -1
  int first = 0;          // for what was enqueued there
  bool is_known = false;  // whether all of it was known already: the wait changes nothing
  std::string task;       // that was being enqueued; empty: none
};

/// What a device was asked for since forget().
struct Asked {
  /// By stream and operator ("add.out"). A launch is one call of an operator that writes the
  /// device's memory; a _foreach_ operator counts one for each 64 tensors or part of it.
  std::map<std::pair<int, std::string>, std::int64_t> launches;
  /// "_local_scalar_dense [encode bucket 2]", by reason and task.
  std::map<std::string, std::int64_t> host_waits;
  /// In words: what was not ordered. Empty: all was.
  std::map<std::string, std::int64_t> conflicts;
  std::vector<AskedWait> waits;
  /// Of a wait that is left out: whether something was done without it before a later wait said the
  /// same, and whether a stream still lacks it.
  bool worked_without = false, still_without = false;

  std::int64_t all_launches() const;
  std::int64_t all_host_waits() const;
  /// One line for each conflict, at most `most`.
  std::string conflicts_in_words(std::size_t most = 5) const;
};

/// A copy: the device may be in use.
Asked asked_of(int device);
/// Nothing has been asked. No wait is left out from now on, nor was any: streams know all that they
/// were to wait for.
void forget(int device);
/// As if the host had waited for all, and nobody noticed: late copies arrive, and what used which
/// memory no longer matters. Between two tests.
void finish_all(int device);
/// The wait of this number since forget(), counted from 0, will not happen.
void leave_out_wait(int device, std::int64_t number);

/// How a device's events are used, for tests of single calls. Events are numbered as they are made,
/// those that take times (marks) apart.
struct EventLog {
  bool keeps_calls = false;
  /// "1:2 records 0", "1:2 waits 0" (device:stream), "host waits 0", "host asks for 0"; of marks
  /// "1:2 sets a mark", "host waits for a mark"; and what a test adds.
  std::vector<std::string> calls;
  std::int64_t events_made = 0, events_destroyed = 0;  // without times
  std::int64_t marks_made = 0, marks_asked = 0;        // asked: whether they are over
};
/// No lock guards it: for a test of one thread at a time.
EventLog& event_log(int device);

/// Whether streams say that a graph is captured in them, which LibTorch asks from 2.13 on. What is
/// enqueued runs all the same.
void set_capturing(bool on);

}  // namespace linerate::simulated
