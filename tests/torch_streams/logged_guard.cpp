#include "torch_streams/logged_guard.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>

namespace linerate::support {
namespace {

constexpr c10::DeviceIndex kDevices = 2;
constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

struct OfThread {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, kDevices> streams{};
};
thread_local OfThread of_this_thread;

/// What a void* of c10 is.
struct LoggedEvent {
  std::int64_t number;
};

class LoggedGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    of_this_thread.device = d.index();
    return before;
  }
  c10::Device getDevice() const override { return {kType, of_this_thread.device}; }
  void setDevice(c10::Device d) const override { of_this_thread.device = d.index(); }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    of_this_thread.device = d.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device d) const override { return as_stream(d, stream_of(d)); }
  c10::Stream getDefaultStream(c10::Device d) const override { return as_stream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    return as_stream(d, ++guard_log().streams_made);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const c10::Stream before = getStream(s.device());
    stream_of(s.device()) = s.id();
    return before;
  }

  void record(void** event, const c10::Stream& s, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new LoggedEvent{guard_log().events_made++};
    note(GuardCall::Kind::record, &s, *event);
  }
  void block(void* event, const c10::Stream& s) const override {
    note(GuardCall::Kind::block, &s, event);
  }
  void synchronizeEvent(void* event) const override {
    note(GuardCall::Kind::host_wait, nullptr, event);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<LoggedEvent*>(event);
    ++guard_log().events_destroyed;
  }

  // Nobody should.
  bool queryEvent(void* event) const override {
    note(GuardCall::Kind::query, nullptr, event);
    return true;
  }
  bool queryStream(const c10::Stream& s) const override {
    note(GuardCall::Kind::query, &s, nullptr);
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override {
    note(GuardCall::Kind::other_wait, &s, nullptr);
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    note(GuardCall::Kind::other_wait, nullptr, nullptr);
  }

 private:
  static c10::StreamId& stream_of(c10::Device d) {
    return of_this_thread.streams.at(static_cast<std::size_t>(d.index()));
  }
  static c10::Stream as_stream(c10::Device d, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, d, id);
  }
  static void note(GuardCall::Kind kind, const c10::Stream* stream, const void* event) {
    GuardCall call{.kind = kind};
    if (stream) call.device = stream->device_index(), call.stream = stream->id();
    if (event) call.event = static_cast<const LoggedEvent*>(event)->number;
    guard_log().calls.push_back(call);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, LoggedGuard)

}  // namespace

GuardLog& guard_log() {
  static GuardLog log;
  return log;
}

void forget_guard_calls() {
  guard_log() = {};
  of_this_thread = {};
}

c10::Device logged_device(c10::DeviceIndex index) { return {kType, index}; }
c10::Device current_device() { return c10::impl::getDeviceGuardImpl(kType)->getDevice(); }
c10::Stream current_stream(c10::DeviceIndex index) {
  return c10::impl::getDeviceGuardImpl(kType)->getStream(logged_device(index));
}

}  // namespace linerate::support
