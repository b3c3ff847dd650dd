// A communicator of one rank that notes what is submitted, and completes each collective only when
// the test says so.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/error.hpp"

namespace linerate::exec {

struct FakeWork : comm::Work {
  bool is_done = false;
  std::string error;
  void wait() override {
    is_done = true;
    if (!error.empty()) throw CommError(error);
  }
  bool done() const override { return is_done; }
  comm::WorkTimes times() const override { return {1000, 2000}; }
  void on_done(std::function<void()> action) override { then = std::move(action); }
  /// What the progress thread would do.
  void finish() {
    is_done = true;
    if (const auto action = std::exchange(then, nullptr)) action();
  }
  std::function<void()> then;
};

class FakeCommunicator : public comm::Communicator {
 public:
  std::vector<std::string> submitted;
  std::vector<std::shared_ptr<FakeWork>> works;

  /// Actions may hold their Work.
  ~FakeCommunicator() override {
    for (const auto& work : works) work->then = nullptr;
  }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string transport() const override { return "thread"; }
  comm::WorkPtr submit(comm::Submission what) override {
    if (what.call == comm::CollectiveCall::all_gather && what.output.dtype == DType::i64)
      // fingerprints: one rank agrees with itself
      *static_cast<std::int64_t*>(what.output.data) =
          *static_cast<const std::int64_t*>(what.input.data);
    submitted.push_back(what.name);
    works.push_back(std::make_shared<FakeWork>());
    return works.back();
  }
  std::unique_ptr<comm::Communicator> split(int colour, int, std::string) override {
    return colour < 0 ? nullptr : std::make_unique<FakeCommunicator>();
  }
  void abort(const std::string&) override {}
  using Communicator::busy;
  comm::Busy busy(std::string, std::optional<Duration>) override { return {}; }
  void set_checked(bool) override {}
  comm::Traffic traffic() const override { return {}; }
};

}  // namespace linerate::exec
