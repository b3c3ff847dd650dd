// Devices by PyTorch's names, and what a timer asks of one.
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/exec/streams/stream_times.hpp"
#include "torch_adapter/streams/logged_lines.hpp"

namespace linerate::torch_adapter {
namespace {

using support::guard_log;
using support::taken_calls;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename Kind>
std::string refusal(const std::string& name) {
  try {
    static_cast<void>(named_device(name, 0));
  } catch (const Kind& e) {
    return e.what();
  }
  return "not refused";
}

TEST(NamedDevice, IsThatOfPyTorchsName) {
  EXPECT_EQ(named_device("cpu", 5), c10::Device(c10::kCPU));
  EXPECT_EQ(named_device("privateuseone:1", 0), support::logged_device(1));
  EXPECT_EQ(type_name(support::logged_device(1)), "privateuseone");
  EXPECT_EQ(type_name(c10::Device(c10::kCUDA, 3)), "cuda");
}

/// Two of them: the third rank of a machine begins again.
TEST(NamedDevice, WithoutAnIndexIsOneAfterTheOther) {
  std::vector<c10::Device> found;
  for (const int turn : {0, 1, 2}) found.push_back(named_device("privateuseone", turn));
  EXPECT_THAT(found, ElementsAre(support::logged_device(0), support::logged_device(1),
                                 support::logged_device(0)));
}

TEST(NamedDevice, SaysWhatIsNoName) {
  for (const char* name : {"gpu", "cuda:x", "cuda:-2", "", "0"})
    EXPECT_THAT(refusal<UsageError>(name),
                HasSubstr("expected cpu, or an accelerator as PyTorch names it, found neither; "
                          "name one such as cuda, cuda:1 or xpu"))
        << name;
}

TEST(NamedDevice, SaysWhatIsNotHere) {
  for (const char* name : {"meta", "xla:0"})
    EXPECT_THAT(refusal<DeviceError>(name),
                HasSubstr(std::string("device ") + name +
                          ": expected one with streams and events, found that this PyTorch has "
                          "none of this type; take cpu, or build with"));
  EXPECT_THAT(refusal<DeviceError>("privateuseone:2"),
              HasSubstr("expected an index below the number of devices, found 2 of them"));
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    EXPECT_THAT(refusal<DeviceError>("cuda"), HasSubstr("device cuda: expected one with streams"));
  }
}

/// Marks in the one stream, other work before a round that counts, and no wait but for its end.
TEST(NamedDevice, IsTimedByMarksOfItsStream) {
  support::forget_guard_calls();
  const auto clock = std::make_shared<EventClock>(c10::DeviceType::PrivateUse1);
  clock->follow({support::current_stream(1)});
  const auto work = [](std::uint32_t task) {
    guard_log().calls.push_back({.device = 1, .stream = 0, .id = {0, task}});
  };
  exec::QueueTimer timer(clock, [&] { work(9); });
  taken_calls();
  timer.time({{2, [&](int call) { work(static_cast<std::uint32_t>(call)); }}}, 1);
  std::vector<std::string> round = {"1:0 sets a mark", "1:0 does task 0", "1:0 sets a mark",
                                    "1:0 does task 1", "1:0 sets a mark", "host waits for a mark"};
  std::vector<std::string> expected = round;  // what does not count, twice
  expected.insert(expected.end(), round.begin(), round.end());
  std::vector<std::string> calls = taken_calls();
  EXPECT_GT(std::erase(calls, "1:0 does task 9"), 0u);
  expected.insert(expected.end(), round.begin(), round.end());
  EXPECT_EQ(calls, expected);
}

}  // namespace
}  // namespace linerate::torch_adapter
