// Ascend's trace_view.json, which torch_npu's profiler writes: a list of Chrome events in which
// processes, named by metadata anywhere in it, say what an event is. "Ascend Hardware" tasks of the
// cores are computation and MEMCPY and SDMA tasks copies; waits, events and writes of flags are
// nothing. Collectives are the hcom_* events of the process "Communication" (older: "HCCL"),
// outside of its planes.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/input/decimal.hpp"
#include "linerate/trace/input/event_array.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/job/rank_in_name.hpp"

namespace linerate::trace {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kHardware = "Ascend Hardware";

std::string_view text_or_empty(simdjson::simdjson_result<dom::element> value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS ? text : std::string_view{};
}

/// Numbers, or numbers in quotes (the writer's way to keep nanoseconds), as written.
std::optional<std::int64_t> time_of(simdjson::simdjson_result<dom::element> value) {
  dom::element e;
  if (value.get(e) != simdjson::SUCCESS) return std::nullopt;
  std::string_view text;
  if (e.get(text) == simdjson::SUCCESS) return parse_us_as_ns(text);
  return parse_us_as_ns(simdjson::minify(e));
}

/// "hcom_allReduce__363_0_1", "hcom_receive__..." -> the operation; nullopt for other names.
std::optional<CommOp> operation_of(std::string_view name) {
  constexpr std::string_view kPrefix = "hcom_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const std::string op = lowered(name.substr(0, name.find("__")));
  if (op.starts_with("receive")) return CommOp::recv;
  if (op.starts_with("batchsendrecv")) return CommOp::send_recv;
  return op_of_collective_name(op);
}

class AscendReader {
 public:
  explicit AscendReader(const std::string& name) : name_(name) {}

  void name_process(const dom::element& e) {
    if (text_or_empty(e["ph"]) != "M") return;
    const std::string_view named = text_or_empty(e["args"]["name"]);
    if (text_or_empty(e["name"]) == "process_name") processes_[number(e["pid"])] = named;
    if (text_or_empty(e["name"]) == "thread_name")
      threads_[{number(e["pid"]), number(e["tid"])}] = named;
  }

  void event(const dom::element& e) {
    if (text_or_empty(e["ph"]) != "X") return;
    const auto start = time_of(e["ts"]), length = time_of(e["dur"]);
    constexpr std::int64_t kDay = 86'400'000'000'000;
    if (!start || !length || *length < 0 || *length > kDay || std::abs(*start) > INT64_MAX / 4) {
      ++refused_;
      return;
    }
    keep(e, {*start, *start + *length});
  }

  Job finish() {
    Job job;
    std::sort(rank_.steps.begin(), rank_.steps.end(),
              [](const StepSpan& a, const StepSpan& b) { return a.number < b.number; });
    for (Communication& c : rank_.communications) c.step = step_at(c.span.start_ns);
    sort_by_start(rank_.communications);
    rank_.rank = rank_in_name(name_);
    rank_.source = name_;
    const auto note = [&](std::string text) {
      job.notes.push_back(fmt::format("{}: {}", name_, text));
    };
    note(
        "Ascend's trace_view: a collective belongs to the step in which it ran; how many ranks "
        "took part is not in it");
    if (rank_.steps.empty()) note("no ProfilerStep annotation: time per step is unknown");
    if (refused_ > 0) note(fmt::format("{} events without a readable time left out", refused_));
    job.ranks.push_back(std::move(rank_));
    return job;
  }

 private:
  static std::int64_t number(simdjson::simdjson_result<dom::element> value) {
    std::int64_t n = 0;
    return value.get(n) == simdjson::SUCCESS ? n : -1;
  }

  void keep(const dom::element& e, Span span) {
    const std::string_view name = text_or_empty(e["name"]);
    const std::string_view process = processes_[number(e["pid"])];
    if (process == kHardware) return keep_task(e, span);
    if (process == "Communication" || process == "HCCL") return keep_collective(e, name, span);
    constexpr std::string_view kStep = "ProfilerStep#";
    if (!name.starts_with(kStep)) return;
    if (const auto n = parse_whole(name.substr(kStep.size()))) rank_.steps.push_back({*n, span});
  }

  void keep_task(const dom::element& e, Span span) {
    const std::string type = lowered(text_or_empty(e["args"]["Task Type"]));
    const auto has = [&type](std::string_view word) {
      return type.find(word) != std::string::npos;
    };
    if (has("memcpy") || has("sdma") || has("memset"))
      rank_.copies.push_back(span);
    else if (has("core") || has("ai_cpu") || has("aicpu") || has("mix") || has("dsa"))
      rank_.compute.push_back(span);  // others are waits, event records and notifications
  }

  void keep_collective(const dom::element& e, std::string_view name, Span span) {
    const std::string_view thread = threads_[{number(e["pid"]), number(e["tid"])}];
    const std::optional<CommOp> op = operation_of(name);
    if (!op || thread.starts_with("Plane")) return;
    Communication c{.span = span, .op = *op};
    const std::int64_t count = number(e["args"]["count"]);
    const int element = element_bytes(text_or_empty(e["args"]["data_type"]));
    // The trace does not say whether the others count one rank's part or all.
    const bool whole = *op == CommOp::all_reduce || *op == CommOp::broadcast ||
                       *op == CommOp::reduce || *op == CommOp::send || *op == CommOp::recv;
    if (whole && count >= 0 && count < (std::int64_t{1} << 40) && element > 0)
      c.bytes = count * element;
    rank_.communications.push_back(c);
  }

  /// "FP32", "BFP16", "INT8": Huawei's names end in the bits.
  static int element_bytes(std::string_view type) {
    for (const auto& [bits, bytes] : {std::pair{"64", 8}, {"32", 4}, {"16", 2}, {"8", 1}})
      if (type.ends_with(bits)) return bytes;
    return -1;
  }

  std::int32_t step_at(std::int64_t time) const {
    for (std::size_t i = 0; i < rank_.steps.size(); ++i)
      if (time >= rank_.steps[i].span.start_ns && time < rank_.steps[i].span.end_ns)
        return static_cast<std::int32_t>(i);
    return -1;
  }

  const std::string& name_;
  std::map<std::int64_t, std::string_view> processes_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string_view> threads_;
  RankActivity rank_;
  std::size_t refused_ = 0;
};

/// A list of events with a process "Ascend Hardware".
bool is_ascend(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '[' &&
         text.find(kHardware) != std::string_view::npos;
}

Job read_ascend(PaddedText text, const std::string& name) {
  const EventArray events(std::move(text), name, "the list of events of Ascend's trace_view.json");
  AscendReader reader(name);
  events.for_each([&](const dom::element& e) { reader.name_process(e); });
  events.for_each([&](const dom::element& e) { reader.event(e); });
  Job job = reader.finish();
  if (!events.repair_note().empty()) job.notes.push_back(events.repair_note());
  return job;
}

}  // namespace

std::vector<Importer> ascend_importers() {
  return {{.name = "Ascend trace",
           .matches = [](const Head& head) { return yes_if(is_ascend(head.text())); },
           .read = [](PaddedText text, const std::string& file, const ReadOptions&) -> std::any {
             return read_ascend(std::move(text), file);
           },
           .join = only_job,
           .claims = is_ascend}};
}

}  // namespace linerate::trace
