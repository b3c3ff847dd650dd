// Devices, streams and events, as c10 asks for them.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstring>

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

std::atomic<bool> captures = false;

/// What a void* of c10 is.
struct Event {
  bool takes_times;
  std::int64_t number;  // of its kind
  Clock clock = {};
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
    note_in(s, "is asked for everything");
    host_learns(*there, there->order.event(static_cast<int>(s.id())));
    return true;
  }
  void synchronizeStream(const c10::Stream& s) const override {
    note_in(s, "is waited for");
    host_waits(s.device_index(), static_cast<int>(s.id()), "a whole stream");
  }
  void synchronizeDevice(c10::DeviceIndex d) const override {
    const auto there = in_use(d);
    note(*there, "host waits for everything");
    ++there->asked.host_waits[in_words("the whole device", of_thread().task())];
    host_learns(*there, there->order.all());
  }

  void record(void** event, const c10::Stream& s, c10::DeviceIndex,
              c10::EventFlag flag) const override {
    const auto there = in_use(s.device_index());
    const bool takes_times = flag == c10::EventFlag::BACKEND_DEFAULT;
    std::int64_t& made = takes_times ? there->events.marks_made : there->events.events_made;
    if (!*event) *event = new Event{takes_times, made++};
    const int stream = static_cast<int>(s.id());
    Event& e = as_event(*event);
    e = {e.takes_times,    e.number, there->order.event(stream),
         s.device_index(), stream,   there->ns_of(stream)};
    note_in(s, takes_times ? "sets a mark" : numbered("records", e));
  }
  void block(void* event, const c10::Stream& s) const override {
    if (!event) return;
    const auto there = in_use(s.device_index());
    const Event& e = as_event(event);
    TORCH_CHECK(e.device == s.device_index(), "simulated devices have no events in common");
    note_in(s, numbered("waits", e));
    stream_waits(e.device, static_cast<int>(s.id()), e.stream, e.clock, e.ns);
  }
  void synchronizeEvent(void* event) const override {
    const Event& e = as_event(event);
    const auto there = in_use(e.device);
    note(*there, e.takes_times ? "host waits for a mark" : numbered("host waits", e));
    ++there->asked.host_waits[in_words("an event", of_thread().task())];
    host_learns(*there, e.clock);
  }
  /// The first time the host has come too early, always, unless it knows.
  bool queryEvent(void* event) const override {
    if (!event) return true;
    Event& e = as_event(event);
    const auto there = in_use(e.device);
    if (!e.takes_times) note(*there, numbered("host asks for", e));
    ++there->events.marks_asked;
    if (!std::exchange(e.was_asked, true) && !there->order.host_knows(e.stream, e.clock[e.stream]))
      return false;
    host_learns(*there, e.clock);
    return true;
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    const std::unique_ptr<Event> gone(static_cast<Event*>(event));
    in_use(gone->device)->events.events_destroyed += !gone->takes_times;
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
  static void note(State& there, std::string call) {
    if (there.events.keeps_calls) there.events.calls.push_back(std::move(call));
  }
  static void note_in(const c10::Stream& s, const std::string& what) {
    note(simulated::state(s.device_index()),
         std::to_string(s.device_index()) + ":" + std::to_string(s.id()) + " " + what);
  }
  static std::string numbered(const char* what, const Event& e) {
    return what + (" " + std::to_string(e.number));
  }
  static Event& as_event(void* event) { return *static_cast<Event*>(event); }
  static int index_of(c10::Device d) { return d.has_index() ? d.index() : of_thread().device; }
  static c10::Stream stream_of(int device, int id) {
    return c10::Stream(c10::Stream::UNSAFE, simulated::device(device), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// ---- what PyTorch asks of an accelerator besides operators; its name; the titles of tasks

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override { return device(of_thread().device); }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(of_thread().device);
  }
  void setCurrentDevice(c10::DeviceIndex d) const override { of_thread().device = d; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::StorageImpl& it = *storage.unsafeGetStorageImpl();
    c10::DataPtr fresh = device_allocator().allocate(bytes);
    if (const std::size_t kept = std::min(bytes, it.nbytes()))
      std::memcpy(for_kernels(fresh.get()), for_kernels(it.data()), kept);
    it.set_data_ptr_noswap(std::move(fresh));
    it.set_nbytes(bytes);
  }
};

/// A range that a program opens (a task of a Plan, say) is what its thread does until it closes it.
std::unique_ptr<at::ObserverContext> open_task(const at::RecordFunction& range) {
  of_thread().tasks.emplace_back(range.name());
  return nullptr;
}
void close_task(const at::RecordFunction&, at::ObserverContext*) {
  if (!of_thread().tasks.empty()) of_thread().tasks.pop_back();
}

const bool registered = [] {
  static Hooks hooks;
  c10::register_privateuse1_backend("sim");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  at::addGlobalCallback(
      at::RecordFunctionCallback(&open_task, &close_task).scopes({at::RecordScope::USER_SCOPE}));
  return true;
}();

}  // namespace

void set_capturing(bool on) { captures = on; }

}  // namespace linerate::simulated
