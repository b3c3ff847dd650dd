// A communicator that passes everything on and notes what was submitted.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string>
#include <vector>

#include "faults/interposed_communicator.hpp"

namespace linerate::torch_adapter {

class NotingCommunicator : private faults::Interposer, public faults::InterposedCommunicator {
 public:
  explicit NotingCommunicator(comm::Communicator& inner) : InterposedCommunicator(inner, *this) {}

  /// "NAME: S bytes", in order; S as core/dtype.hpp has it. Empties the list.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::move(submitted_);
  }

  /// Of what is reduced, not of what is received.
  comm::WorkPtr reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::Reduce op,
                               std::string name) override {
    note(name, in.count.value, in.dtype);
    return inner_.reduce_scatter(in, out, op, std::move(name));
  }
  using InterposedCommunicator::reduce_scatter;

 private:
  void before(const std::string& name, comm::Buffer& b) override {
    note(name, b.count.value, b.dtype);
  }
  bool spoils(const std::string&) override { return false; }
  void note(const std::string& name, std::int64_t count, DType type) {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(fmt::format("{}: {} bytes", name, count * size_of(type)));
  }

  std::mutex mutex_;
  std::vector<std::string> submitted_;
};

}  // namespace linerate::torch_adapter
