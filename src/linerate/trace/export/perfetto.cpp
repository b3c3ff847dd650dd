// Perfetto draws an event as a bar on a track of a process. A rank is a process, and a resource has
// up to 64 tracks of it, numbered in a block. Tracks are only named if an event is on them.
#include "linerate/trace/export/perfetto.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::trace {
namespace {

using doc::Json;

// Tracks of one resource are numbered from its block; more than this many at once share the last.
constexpr int kTracksPerResource = 64;
constexpr int kStepTrack = 0;

/// An event and the track it is drawn on.
struct Placed {
  const doc::Event* event;
  int track;
};

int first_track(doc::Resource r) { return 1 + static_cast<int>(r) * kTracksPerResource; }

std::int64_t earliest(const doc::Timeline& t) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const doc::Event& e : t.events) least = std::min(least, e.start_ns);
  for (const doc::Step& s : t.steps) least = std::min(least, s.start_ns);
  for (const doc::Counter& c : t.counters)
    if (!c.samples.empty()) least = std::min(least, c.samples.front().time_ns);
  return least == std::numeric_limits<std::int64_t>::max() ? 0 : least;
}

/// Puts each event on the first track of its resource on which it overlaps no open event, or lies
/// wholly inside the innermost one. Events are visited by start, the longer one first. Example: A
/// from 0 to 10, B from 2 to 5, C from 4 to 12. B lies inside A and goes on the same track; C
/// overlaps both and opens a second track.
std::vector<Placed> place(const doc::Timeline& t) {
  std::vector<const doc::Event*> order;
  for (const doc::Event& e : t.events) order.push_back(&e);
  std::ranges::stable_sort(order, [](const doc::Event* a, const doc::Event* b) {
    return std::tuple(a->start_ns, -a->end_ns) < std::tuple(b->start_ns, -b->end_ns);
  });
  // Per rank and resource, per track: the ends of the open events, innermost last.
  std::map<std::pair<int, doc::Resource>, std::vector<std::vector<std::int64_t>>> open;
  std::vector<Placed> placed;
  for (const doc::Event* e : order) {
    auto& tracks = open[{e->rank, e->resource}];
    std::size_t at = 0;
    for (; at < tracks.size(); ++at) {
      auto& ends = tracks[at];
      while (!ends.empty() && ends.back() <= e->start_ns) ends.pop_back();
      if (ends.empty() || e->end_ns <= ends.back() || at + 1 == kTracksPerResource) break;
    }
    if (at == tracks.size()) tracks.emplace_back();
    tracks[at].push_back(e->end_ns);
    placed.push_back({e, first_track(e->resource) + static_cast<int>(at)});
  }
  return placed;
}

class Writer {
 public:
  explicit Writer(const doc::Timeline& t) : timeline_(t), zero_(earliest(t)), placed_(place(t)) {}

  std::string write() {
    name_tracks();
    for (const doc::Step& s : timeline_.steps) add_step(s);
    for (const Placed& p : placed_) add_event(p);
    add_flows();
    for (const doc::Counter& c : timeline_.counters) add_counter(c);
    const Json whole = {{"displayTimeUnit", "ns"},
                        {"otherData",
                         {{"mode", timeline_.mode},
                          {"source", timeline_.source},
                          {"workload", timeline_.workload},
                          {"strategy", timeline_.strategy},
                          {"transport", timeline_.transport}}},
                        {"traceEvents", std::move(events_)}};
    return whole.dump() + "\n";
  }

 private:
  double microseconds(std::int64_t ns) const { return static_cast<double>(ns - zero_) * 1e-3; }

  void add_metadata(const char* what, int rank, int track, Json args) {
    Json e = {{"ph", "M"}, {"name", what}, {"pid", rank}};
    if (track >= 0) e["tid"] = track;
    e["args"] = std::move(args);
    events_.push_back(std::move(e));
  }

  void name_tracks() {
    std::set<int> ranks;
    std::set<std::tuple<int, int, std::string>> tracks;
    for (const doc::Step& s : timeline_.steps)
      ranks.insert(s.rank), tracks.insert({s.rank, kStepTrack, "steps"});
    for (const doc::Counter& c : timeline_.counters) ranks.insert(c.rank);
    for (const Placed& p : placed_) {
      const int lane = p.track - first_track(p.event->resource);
      ranks.insert(p.event->rank);
      tracks.insert({p.event->rank, p.track,
                     lane == 0 ? std::string(name_of(p.event->resource))
                               : fmt::format("{} {}", name_of(p.event->resource), lane + 1)});
    }
    for (const int r : ranks) {
      add_metadata("process_name", r, -1, {{"name", fmt::format("rank {}", r)}});
      add_metadata("process_sort_index", r, -1, {{"sort_index", r}});
    }
    for (const auto& [rank, track, name] : tracks) {
      add_metadata("thread_name", rank, track, {{"name", name}});
      add_metadata("thread_sort_index", rank, track, {{"sort_index", track}});
    }
  }

  Json complete(std::string name, std::string_view category, int rank, int track,
                std::int64_t start, std::int64_t end) {
    return {{"ph", "X"},
            {"name", std::move(name)},
            {"cat", category},
            {"pid", rank},
            {"tid", track},
            {"ts", microseconds(start)},
            {"dur", static_cast<double>(end - start) * 1e-3}};
  }

  void add_step(const doc::Step& s) {
    Json e =
        complete(fmt::format("step {}", s.index), "step", s.rank, kStepTrack, s.start_ns, s.end_ns);
    if (!s.variant.empty()) e["args"] = {{"variant", s.variant}};
    events_.push_back(std::move(e));
  }

  void add_event(const Placed& p) {
    const doc::Event& event = *p.event;
    const std::string name = event.name >= 0 ? timeline_.names[to_index(event.name)] : "";
    const std::string kind(name_of(event.kind));
    Json e = complete(name.empty() ? kind : kind + " " + name, kind, event.rank, p.track,
                      event.start_ns, event.end_ns);
    Json args = {{"step", event.step}};
    if (event.bytes >= 0) args["bytes"] = event.bytes;
    if (event.group >= 0) {
      const doc::RankGroup& group = timeline_.groups[to_index(event.group)];
      args["group"] = group.name;
      args["group_ranks"] = group.ranks;
    }
    if (event.ready_ns >= 0) args["ready_us"] = microseconds(event.ready_ns);
    if (event.set >= 0) {
      Json parameters = Json::array();
      for (const std::int32_t i : timeline_.parameter_sets[to_index(event.set)])
        parameters.push_back(timeline_.parameter_names[to_index(i)]);
      args["parameters"] = std::move(parameters);
    }
    e["args"] = std::move(args);
    events_.push_back(std::move(e));
  }

  /// Draws an arrow to each collective from its producer. The producer is a backward event of the
  /// same rank and step that shares a parameter and began before it. Of several, it is the last to
  /// end. It need not end before the collective begins: a layer's event may cover work after its
  /// gradient was ready.
  void add_flows() {
    std::map<std::tuple<int, int, std::int32_t>, const Placed*> producers;  // rank, step, parameter
    for (const Placed& p : placed_) {
      if (p.event->kind != doc::TaskKind::backward || p.event->set < 0) continue;
      for (const std::int32_t parameter : timeline_.parameter_sets[to_index(p.event->set)]) {
        const Placed*& last = producers[{p.event->rank, p.event->step, parameter}];
        if (!last || p.event->end_ns > last->event->end_ns) last = &p;
      }
    }
    for (const Placed& p : placed_) {
      if (!doc::is_communication(p.event->kind) || p.event->set < 0) continue;
      const Placed* producer = nullptr;
      for (const std::int32_t parameter : timeline_.parameter_sets[to_index(p.event->set)]) {
        const auto found = producers.find({p.event->rank, p.event->step, parameter});
        if (found == producers.end() || found->second->event->start_ns > p.event->start_ns)
          continue;
        if (!producer || found->second->event->end_ns > producer->event->end_ns)
          producer = found->second;
      }
      if (producer) add_flow(*producer, p);
    }
  }

  void add_flow(const Placed& from, const Placed& to) {
    const auto end = [&](const char* phase, const Placed& p) -> Json {
      // A flow binds to the slice that encloses its time stamp, so it leaves from inside the
      // producer.
      return {{"ph", phase},
              {"name", "gradients"},
              {"cat", "ready"},
              {"id", flows_},
              {"pid", p.event->rank},
              {"tid", p.track},
              {"ts", microseconds(p.event->start_ns)}};
    };
    ++flows_;
    events_.push_back(end("s", from));
    Json finish = end("f", to);
    finish["bp"] = "e";
    events_.push_back(std::move(finish));
  }

  void add_counter(const doc::Counter& c) {
    for (const doc::CounterSample& s : c.samples)
      events_.push_back({{"ph", "C"},
                         {"name", c.name},
                         {"pid", c.rank},
                         {"ts", microseconds(s.time_ns)},
                         {"args", {{"value", s.value}}}});
  }

  const doc::Timeline& timeline_;
  std::int64_t zero_;
  std::vector<Placed> placed_;
  Json events_ = Json::array();
  int flows_ = 0;
};

}  // namespace

std::string to_perfetto(const doc::Timeline& timeline) {
  validate(timeline);
  return Writer(timeline).write();
}

void save_perfetto(const doc::Timeline& timeline, const std::filesystem::path& path) {
  write_file_atomically(path, to_perfetto(timeline));
}

}  // namespace linerate::trace
