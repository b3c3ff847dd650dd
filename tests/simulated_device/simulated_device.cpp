#include "simulated_device/simulated_device.hpp"

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

constexpr std::int64_t kWorkNs = 1000;  // of each launch, on the device's clock

template <typename Counted>
std::int64_t sum_of(const Counted& counted) {
  std::int64_t sum = 0;
  for (const auto& [what, times] : counted) sum += times;
  return sum;
}

std::string words_of(const Conflict& conflict, int device) {
  const auto side = [](const Work& work) {
    return "stream " + std::to_string(work.stream) + " " + in_words(work.name, work.task);
  };
  return std::string(conflict.kind) + ": " + side(*conflict.before) + " -> " + side(*conflict.now) +
         ", " + life_of(device, conflict.byte);
}

}  // namespace

State& state(int device) {
  static auto* const all = new std::array<State, kDevices>;
  return all->at(static_cast<std::size_t>(device));
}

OfThread& of_thread() {
  thread_local OfThread mine;
  return mine;
}

std::string in_words(const std::string& name, const std::string& task) {
  return task.empty() ? name : name + " [" + task + "]";
}

void work(int device, int stream, const std::string& name, const std::vector<Range>& reads,
          const std::vector<Range>& writes, std::int64_t launches) {
  State& d = state(device);
  const Lock lock(d.mutex);
  for (const Conflict& found : d.order.work(stream, name, of_thread().task(), reads, writes))
    ++d.asked.conflicts[words_of(found, device)];
  d.ns_of(stream) += kWorkNs * launches;
  if (launches > 0) d.asked.launches[{stream, name}] += launches;
}

void host_learns(State& d, const Clock& event) {
  d.order.host_learns(event);
  std::vector<LateCopy> waiting;
  for (LateCopy& copy : std::exchange(d.late, {}))
    if (d.order.host_knows(copy.stream, copy.at))
      copy.arrive();
    else
      waiting.push_back(std::move(copy));
  d.late = std::move(waiting);
}

void host_waits(int device, int stream, const std::string& reason) {
  State& d = state(device);
  const Lock lock(d.mutex);
  ++d.asked.host_waits[in_words(reason, of_thread().task())];
  host_learns(d, d.order.event(stream));
}

void stream_waits(int device, int stream, int first, const Clock& event, std::int64_t event_ns) {
  State& d = state(device);
  const auto number = static_cast<std::int64_t>(d.asked.waits.size());
  d.asked.waits.push_back({stream, first, d.order.stream_knows(stream, event), of_thread().task()});
  if (number == d.left_out) return d.order.stream_misses(stream, event);
  d.order.stream_learns(stream, event);
  d.ns_of(stream) = std::max(d.ns_of(stream), event_ns);
}

c10::Device device(int index) { return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(index)}; }

c10::Stream current_stream(int index) {
  return c10::Stream(c10::Stream::UNSAFE, device(index),
                     of_thread().streams.at(static_cast<std::size_t>(index)));
}

Asked asked_of(int device) {
  State& d = state(device);
  const Lock lock(d.mutex);
  Asked asked = d.asked;
  asked.worked_without = d.order.worked_without();
  asked.still_without = d.order.is_still_without();
  return asked;
}

void forget(int device) {
  State& d = state(device);
  const Lock lock(d.mutex);
  d.asked = {};
  d.left_out = -1;
  d.order.mend();
}

void finish_all(int device) {
  State& d = state(device);
  const Lock lock(d.mutex);
  host_learns(d, d.order.all());
  d.order.forget_uses();
}

EventLog& event_log(int device) { return state(device).events; }

void leave_out_wait(int device, std::int64_t number) {
  State& d = state(device);
  const Lock lock(d.mutex);
  d.left_out = number;
}

std::int64_t Asked::all_launches() const { return sum_of(launches); }
std::int64_t Asked::all_host_waits() const { return sum_of(host_waits); }

std::string Asked::conflicts_in_words(std::size_t most) const {
  std::string lines;
  for (const auto& [what, times] : conflicts) {
    if (most-- == 0) return lines + "...\n";
    lines += std::to_string(times) + " x " + what + "\n";
  }
  return lines;
}

}  // namespace linerate::simulated
