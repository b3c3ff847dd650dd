// What every back end must do under a link: set_link before its ranks come together.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

#include "comm/communicator_suite.hpp"
#include "linerate/comm/communicator.hpp"

namespace linerate::comm::suite {

class UnderLink {
 public:
  explicit UnderLink(BytesPerSecond rate) { set_link(rate); }
  ~UnderLink() { set_link(std::nullopt); }
  UnderLink(const UnderLink&) = delete;
  UnderLink& operator=(const UnderLink&) = delete;
};

/// Slow enough that a rank waits for the link and for nothing else, and fast enough for all cases.
inline constexpr BytesPerSecond kSlowLink{12.5e6}, kFastLink{1.25e9};

/// What a rank sends, in whichever of these communicators, has left over its one link before all is
/// done. What an idle link had saved comes first.
inline void expect_no_faster_than_the_link(const std::vector<Communicator*>& communicators) {
  constexpr double kSaved_s = 0.5e-3;
  std::vector<Array> arrays;
  double before = 0, sent = 0;
  for (Communicator* one : communicators) {
    arrays.push_back(filled(DType::f32, 300'007, one->rank()));
    before += static_cast<double>(one->traffic().sent.value);
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<WorkPtr> works;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    works.push_back(communicators[i]->all_reduce(arrays[i].buffer(), Reduce::sum, "x"));
  for (const WorkPtr& work : works) work->wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    expect_reduced(arrays[i], communicators[i]->size());
    sent += static_cast<double>(communicators[i]->traffic().sent.value);
  }
  EXPECT_GE(took.count(), (sent - before) / link_rate()->value - kSaved_s);
}

/// A rank's groups share its link.
inline void is_no_faster_than_its_link(Communicator& comm) {
  EXPECT_FALSE(comm.reads_pieces());
  const auto reversed = comm.split(0, -comm.rank(), "reversed"), same = comm.split(0, 0, "same");
  expect_no_faster_than_the_link({reversed.get(), same.get()});
}

}  // namespace linerate::comm::suite
