// A communicator that passes everything on and notes what was submitted.
#pragma once

#include <fmt/format.h>

#include <mutex>
#include <string>
#include <vector>

#include "faults/interposed_communicator.hpp"

namespace linerate::torch_adapter {

class NotingCommunicator : public faults::InterposedCommunicator {
 public:
  using InterposedCommunicator::InterposedCommunicator;

  /// "NAME: S bytes", in order; S as core/dtype.hpp has it. Empties the list.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::move(submitted_);
  }

  /// Of what is reduced, not of what is received.
  comm::WorkPtr submit(comm::Submission what) override {
    const bool scatters = what.call == comm::CollectiveCall::reduce_scatter;
    const std::int64_t count = (scatters ? what.input : what.output).count.value;
    {
      const std::lock_guard lock(mutex_);
      submitted_.push_back(
          fmt::format("{}: {} bytes", what.name, count * size_of(what.output.dtype)));
    }
    return InterposedCommunicator::submit(std::move(what));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> submitted_;
};

}  // namespace linerate::torch_adapter
