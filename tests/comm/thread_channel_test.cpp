// Messages between threads when a rank fails: what still arrives, and what is taken back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/comm/thread/thread_channel.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

/// Two ranks inside one collective, both moved by the thread of the test. The first sends a message
/// and fails before the second looks.
class FailedSender : public ::testing::Test {
 protected:
  FailedSender() {
    for (const auto& channel : channels_) channel->begin({members_, &print_});
  }

  void send_and_fail(const std::vector<int>& values) {
    Transfer sent;
    channels_[0]->send(1, values.data(), values.size() * sizeof(int), sent);
    EXPECT_THROW(channels_[0]->fail("rank 0 has had enough"), CommError);
  }

  std::string failure_of_waiting_for(const Transfer& transfer) {
    try {
      channels_[1]->wait_for(transfer);
    } catch (const CommError& e) {
      return e.what();
    }
    return "";
  }

  const std::array<int, 2> members_{0, 1};
  const Fingerprint print_{};
  std::shared_ptr<ThreadWorld> world_ = std::make_shared<ThreadWorld>(2, std::chrono::seconds(20));
  std::array<std::unique_ptr<Transport>, 2> channels_{world_->channel(0), world_->channel(1)};
};

/// It may be all that the second rank lacks of a collective that is over for the first.
TEST_F(FailedSender, ItsSmallMessagesArrive) {
  const std::vector<int> values(8, 5);
  send_and_fail(values);
  std::vector<int> received(values.size());
  Transfer transfer;
  channels_[1]->receive(0, received.data(), received.size() * sizeof(int), transfer);
  EXPECT_EQ(failure_of_waiting_for(transfer), "");
  EXPECT_EQ(received, values);

  channels_[1]->receive(0, received.data(), received.size() * sizeof(int), transfer);
  EXPECT_THAT(failure_of_waiting_for(transfer), HasSubstr("rank 0 has had enough"));
}

/// Their bytes are in memory that is the sender's again.
TEST_F(FailedSender, ItsLargeMessagesDoNotArrive) {
  send_and_fail(std::vector<int>(100'000, 5));
  std::vector<int> received(100'000, 3);
  Transfer transfer;
  channels_[1]->receive(0, received.data(), received.size() * sizeof(int), transfer);
  EXPECT_THAT(failure_of_waiting_for(transfer), HasSubstr("rank 0 has had enough"));
  EXPECT_THAT(received, Each(3));
}

}  // namespace
}  // namespace linerate::comm
