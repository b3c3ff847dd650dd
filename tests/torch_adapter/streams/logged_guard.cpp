#include "torch_adapter/streams/logged_guard.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include <array>
#include <utility>

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
  bool takes_times;
  double at_ms = 0;
};

void note(std::string call) { guard_log().calls.push_back(std::move(call)); }
void note_in(const c10::Stream& s, const std::string& what) {
  note(fmt::format("{}:{} {}", static_cast<int>(s.device_index()), s.id(), what));
}

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
              const c10::EventFlag flag) const override {
    const bool takes_times = flag == c10::EventFlag::BACKEND_DEFAULT;
    GuardLog& log = guard_log();
    if (!*event)
      *event = new LoggedEvent{takes_times ? log.marks_made++ : log.events_made++, takes_times};
    as_logged(*event).at_ms = log.device_ms;
    note_in(s, takes_times ? "sets a mark" : numbered("records", *event));
  }
  void block(void* event, const c10::Stream& s) const override {
    note_in(s, numbered("waits", event));
  }
  void synchronizeEvent(void* event) const override {
    const bool is_mark = as_logged(event).takes_times;
    if (is_mark) guard_log().marks_wait = false;
    note(is_mark ? "host waits for a mark" : numbered("host waits", event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    guard_log().events_destroyed += !as_logged(event).takes_times;
    delete &as_logged(event);
  }
  double elapsedTime(void* first, void* then, const c10::DeviceIndex) const override {
    return as_logged(then).at_ms - as_logged(first).at_ms;
  }
  bool queryEvent(void* event) const override {
    if (!as_logged(event).takes_times) note(numbered("host asks for", event));
    ++guard_log().marks_asked;
    return !guard_log().marks_wait;
  }

  // Of LibTorch from 2.13 on, so no override.
  bool isStreamCapturing(const c10::Stream&) const { return false; }  // NOLINT

  // Nobody should.
  bool queryStream(const c10::Stream& s) const override {
    note_in(s, "is asked for everything");
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override { note_in(s, "is waited for"); }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    note("host waits for everything");
  }

 private:
  static LoggedEvent& as_logged(void* event) { return *static_cast<LoggedEvent*>(event); }
  static c10::StreamId& stream_of(c10::Device d) {
    return of_this_thread.streams.at(static_cast<std::size_t>(d.index()));
  }
  static c10::Stream as_stream(c10::Device d, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, d, id);
  }
  static std::string numbered(const char* what, void* event) {
    return fmt::format("{} {}", what, as_logged(event).number);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, LoggedGuard)

}  // namespace

GuardLog& guard_log() {
  static GuardLog log;
  return log;
}

std::vector<std::string> taken_calls() { return std::exchange(guard_log().calls, {}); }

void note_task(const c10::Stream& where, std::uint32_t task) {
  note_in(where, fmt::format("does task {}", task));
}

torch_adapter::TorchStreamDevice::TaskWork logged_work() {
  return [](const exec::StreamWork& work) {
    note_task(current_stream(current_device().index()), work.id.task);
  };
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
