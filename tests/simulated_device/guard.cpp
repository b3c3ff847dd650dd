// Devices, streams and events, as c10 asks for them.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

std::atomic<bool> captures = false;

/// What a void* of c10 is.
struct Event {
  Clock clock;
  int device = 0, stream = 0;
  std::int64_t ns = 0;     // on the device's clock
  bool was_asked = false;  // since it was recorded
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  c10::Device getDevice() const override { return simulated::device(of_thread().device); }
  void setDevice(c10::Device d) const override { of_thread().device = d.index(); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { setDevice(d); }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device before = getDevice();
    setDevice(d);
    return before;
  }

  c10::Stream getStream(c10::Device d) const override { return current_stream(index_of(d)); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream_of(index_of(d), 0); }
  c10::Stream getNewStream(c10::Device d, int priority) const override {
    State& there = state(index_of(d));
    const Lock lock(there.mutex);
    return stream_of(index_of(d),
                     priority < 0 ? 1 + kPool + there.high++ % kPool : 1 + there.normal++ % kPool);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool is_high) const override {
    return getNewStream(d, is_high ? -1 : 0);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const c10::Stream before = getStream(s.device());
    of_thread().streams.at(s.device_index()) = static_cast<int>(s.id());
    return before;
  }
  bool isStreamCapturing(const c10::Stream&) const {
    return captures;
  }  // NOLINT: no override before 2.13
  bool queryStream(const c10::Stream& s) const override {
    const auto there = in_use(s.device_index());
    ++there->asked.queries;
    host_learns(*there, there->order.event(static_cast<int>(s.id())));
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override {
    host_waits(s.device_index(), static_cast<int>(s.id()), "a whole stream");
  }
  void synchronizeDevice(c10::DeviceIndex d) const override {
    const auto there = in_use(d);
    ++there->asked.host_waits[in_words("the whole device", of_thread().task())];
    host_learns(*there, there->order.all());
  }

  void record(void** event, const c10::Stream& s, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    const auto there = in_use(s.device_index());
    if (!*event) *event = new Event;
    const int stream = static_cast<int>(s.id());
    as_event(*event) = {there->order.event(stream), s.device_index(), stream, there->ns_of(stream)};
    ++(flag == c10::EventFlag::BACKEND_DEFAULT ? there->asked.timed_events : there->asked.events);
  }
  void block(void* event, const c10::Stream& s) const override {
    if (!event) return;
    const auto there = in_use(s.device_index());
    const Event& e = as_event(event);
    TORCH_CHECK(e.device == s.device_index(), "simulated devices have no events in common");
    stream_waits(e.device, static_cast<int>(s.id()), e.stream, e.clock, e.ns);
  }
  void synchronizeEvent(void* event) const override {
    const Event& e = as_event(event);
    const auto there = in_use(e.device);
    ++there->asked.host_waits[in_words("an event", of_thread().task())];
    host_learns(*there, e.clock);
  }
  /// The first time the host has come too early, always, unless it knows.
  bool queryEvent(void* event) const override {
    if (!event) return true;
    Event& e = as_event(event);
    const auto there = in_use(e.device);
    ++there->asked.queries;
    if (!std::exchange(e.was_asked, true) && !there->order.host_knows(e.stream, e.clock[e.stream]))
      return false;
    host_learns(*there, e.clock);
    return true;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* first, void* then, c10::DeviceIndex) const override {
    return static_cast<double>(as_event(then).ns - as_event(first).ns) / 1e6;
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream&) const override {
    keep_for_ever(memory);
  }

 private:
  /// A device's state, locked.
  struct InUse {
    State& state;
    std::unique_lock<std::recursive_mutex> lock{state.mutex};
    State* operator->() { return &state; }
    State* operator->() const { return &state; }
    State& operator*() const { return state; }
  };
  static InUse in_use(int device) { return {simulated::state(device)}; }
  static Event& as_event(void* event) { return *static_cast<Event*>(event); }
  static int index_of(c10::Device d) { return d.has_index() ? d.index() : of_thread().device; }
  static c10::Stream stream_of(int device, int id) {
    return c10::Stream(c10::Stream::UNSAFE, simulated::device(device), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
void set_capturing(bool on) { captures = on; }

}  // namespace linerate::simulated
