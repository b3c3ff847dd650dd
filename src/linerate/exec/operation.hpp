// The interface through which the runner reaches the memory and the work of others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::exec {

/// The payload that holds how many elements each rank sends of `payload`; -1 if the Plan gives
/// these numbers.
std::int32_t counts_of(const doc::TaskGraph& graph, std::int32_t payload);

/// The memory of payloads. Its owner knows tensors; the runner does not.
class Payloads {
 public:
  virtual ~Payloads() = default;
  /// The whole array of a payload, padding included: reduce-scatter leaves block rank() of it
  /// reduced, all-gather starts from that block.
  virtual comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) = 0;
  /// The memory that this rank adds to a sum, if it is not in that array yet: pieces as in
  /// Communicator::all_reduce. Empty: the array as it is.
  virtual std::vector<comm::Piece> pieces(const doc::TaskGraph&, std::int32_t) { return {}; }
  /// Keeps that array and its pieces where they are. The runner holds the result while a collective
  /// is in flight, which may be longer than the runner lives. Null: the array outlives every
  /// collective by itself.
  virtual std::shared_ptr<const void> hold(const doc::TaskGraph&, std::int32_t) { return nullptr; }
  /// For gathers of unequal sizes: the elements of each rank's part, in the group's order, as the
  /// payload of counts has them.
  virtual std::vector<std::int64_t> counts(const doc::TaskGraph& graph, const doc::Task& task);
};

/// The work of an executed task other than communication: scale, cast, pack ... Runs in the lane
/// that the Plan names: on the thread that drives the compute lane, or on a worker.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual void run(const doc::TaskGraph& graph, const doc::Task& task) = 0;
};

}  // namespace linerate::exec
