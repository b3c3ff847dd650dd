// The host's records of collectives, given to the Kineto trace of the same rank.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "linerate/core/index.hpp"
#include "linerate/trace/host_trace/host_trace.hpp"

namespace linerate::trace {
namespace {

using ById = std::unordered_map<std::uint64_t, const HostCollective*>;

/// "Record function id" is rf_id itself; files without it have the same number in "External id".
std::uint64_t id_of(const CommMark& m, bool record_functions) {
  return record_functions ? m.record_function : m.external_id;
}

bool fits(const HostCollective& host, const CollectiveArgs* stated) {
  return stated == nullptr || stated->op == CommOp::unknown || host.args.op == CommOp::unknown ||
         stated->op == host.args.op;
}

class HostJoin {
 public:
  HostJoin(const HostTrace& host, KinetoTrace& trace) : host_(host), trace_(trace) {
    for (const HostCollective& c : host.collectives)
      if (c.record_function != 0) by_id_[c.record_function] = &c;
    for (CommMark& m : trace.marks)
      if (trace.names[m.name].kind == NameKind::param_comms) {
        marks_.push_back(&m);
        record_functions_ = record_functions_ || m.record_function != 0;
      }
    std::sort(marks_.begin(), marks_.end(), [](const CommMark* a, const CommMark* b) {
      return a->span.start_ns < b->span.start_ns;
    });
  }

  void run() {
    const auto note = [this](std::string text) {
      trace_.notes.push_back(fmt::format("{}: {}", host_.source, text));
    };
    if (host_.collectives.empty() || marks_.empty())
      return note(
          fmt::format("{} record_param_comms nodes for {} such operations of {}: nothing to "
                      "join",
                      host_.collectives.size(), marks_.size(), trace_.source));
    const std::uint64_t distance = best_distance();
    const std::size_t matched = matches(distance);
    if (ambiguous_ || matched * 2 < std::min(marks_.size(), host_.collectives.size()))
      return note(
          fmt::format("{} of {} collectives have the id of an operation in {}{}: not joined; "
                      "are both of the same run and rank?",
                      ambiguous_ ? std::to_string(matched) : "only " + std::to_string(matched),
                      host_.collectives.size(), trace_.source,
                      ambiguous_ ? ", at more than one distance" : ""));
    std::size_t filled = 0;
    for (CommMark* m : marks_) filled += fill(*m, distance);
    note(fmt::format("{} of {} collectives joined to {}{}, {} of them had no size there", matched,
                     host_.collectives.size(), trace_.source,
                     distance == 0 ? ""
                                   : fmt::format(" (ids differ by {}, pytorch#122833)",
                                                 static_cast<std::int64_t>(distance)),
                     filled));
  }

 private:
  const HostCollective* host_of(const CommMark& m, std::uint64_t distance) const {
    const std::uint64_t id = id_of(m, record_functions_);
    const auto found = by_id_.find(id + distance);
    if (id == 0 || found == by_id_.end()) return nullptr;
    return fits(*found->second, m.args < 0 ? nullptr : &trace_.args[std::size_t(m.args)])
               ? found->second
               : nullptr;
  }

  std::size_t matches(std::uint64_t distance) const {
    return to_index(std::count_if(marks_.begin(), marks_.end(), [&](const CommMark* m) {
      return host_of(*m, distance) != nullptr;
    }));
  }

  /// 0 where ids agree; else the distance at which most do, tried from the first operations on,
  /// since either file may begin earlier. Wraps around below 0.
  std::uint64_t best_distance() {
    constexpr std::size_t kTried = 64;
    std::uint64_t best = 0;
    std::size_t most = matches(0);
    if (most * 2 >= std::min(marks_.size(), host_.collectives.size())) return 0;
    for (std::size_t i = 0; i < std::min(kTried, host_.collectives.size()); ++i) {
      const std::uint64_t distance =
          host_.collectives[i].record_function - id_of(*marks_.front(), record_functions_);
      const std::size_t n = matches(distance);
      ambiguous_ = n > most ? false : ambiguous_ || (n > 0 && n == most && distance != best);
      if (n > most) best = distance, most = n;
    }
    return best;
  }

  bool fill(CommMark& m, std::uint64_t distance) {
    const HostCollective* host = host_of(m, distance);
    if (host == nullptr) return false;
    if (m.args >= 0 && trace_.args[to_index(m.args)].bytes() >= 0) return false;
    CollectiveArgs args = host->args;
    args.group = group_of(host->group);
    trace_.args.push_back(args);
    m.args = static_cast<std::int32_t>(trace_.args.size() - 1);
    return true;
  }

  std::int32_t group_of(const GroupRecord& g) {
    if (g.name.empty()) return -1;
    ResolvedGroup resolved = resolve_groups({g}, trace_.configured, trace_.world_size).front();
    const auto found =
        std::find_if(trace_.groups.begin(), trace_.groups.end(),
                     [&](const ResolvedGroup& known) { return known.text == resolved.text; });
    const auto at = static_cast<std::int32_t>(found - trace_.groups.begin());
    if (found == trace_.groups.end()) trace_.groups.push_back(std::move(resolved));
    return at;
  }

  const HostTrace& host_;
  KinetoTrace& trace_;
  ById by_id_;
  std::vector<CommMark*> marks_;
  bool record_functions_ = false, ambiguous_ = false;
};

}  // namespace

void join_host(const HostTrace& host, KinetoTrace& trace) { HostJoin(host, trace).run(); }

}  // namespace linerate::trace
