// Tokens of an event become a compact record, or nothing. This runs once for each event of a file,
// which may have millions. So names are interned, arguments are parsed only if the record uses
// them, and the last thread is remembered.
#include "linerate/trace/kineto/records.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/trace/input/json_token.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {
namespace {

int small_number(std::string_view token) {
  const auto n = parse_whole(token);
  return n && *n >= 0 && *n < (1 << 24) ? static_cast<int>(*n) : -1;
}

/// Whether the shapes of its inputs are of interest.
bool has_shapes(const NameInfo& info) {
  return info.kind == NameKind::accumulate_grad || info.layer != LayerOperator::none;
}

}  // namespace

void KinetoRecords::file(const FileTokens& f) {
  out_.rank = small_number(f.rank);
  out_.world_size = small_number(f.world_size);
  out_.backend = unquoted(f.backend);
  out_.base_ns = parse_whole(f.base_time).value_or(0);
  if (std::abs(out_.base_ns) > INT64_MAX / 4) out_.base_ns = 0;
  out_.configured = parse_configured_groups(f.groups);
  out_.groups = resolve_groups(groups_, out_.configured, out_.world_size);
}

bool KinetoRecords::needs_no_args(EventCategory category, std::string_view name) {
  if (category == EventCategory::device_annotation || category == EventCategory::other_device)
    return true;
  if ((category != EventCategory::cpu_op && category != EventCategory::annotation) || name.empty())
    return false;
  const NameInfo& info = out_.names[out_.names.intern(name)];
  return info.kind != NameKind::comm_mark && info.kind != NameKind::param_comms &&
         info.kind != NameKind::c10d && !has_shapes(info);
}

bool KinetoRecords::span_of(const EventTokens& t, Span& span) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  if (t.dur.empty()) return ++out_.without_duration, false;
  const auto start = parse_us_as_ns(t.ts), duration = parse_us_as_ns(t.dur);
  if (!start || !duration) return ++out_.bad_time, false;
  if (*duration < 0 || *duration > kDay || *start > INT64_MAX / 4 || *start < -(INT64_MAX / 4))
    return ++out_.absurd, false;
  span = {*start, *start + *duration};
  return true;
}

std::int64_t KinetoRecords::thread_of(std::string_view token) {
  if (token == last_thread_token_) return last_thread_;  // as most are
  const auto n = parse_whole(token);
  last_thread_ = n ? *n : -1 - std::int64_t{thread_names_.intern(unquoted(token))};  // "Spans", ""
  last_thread_token_ = token;
  return last_thread_;
}

std::int32_t KinetoRecords::group_of(const ArgTokens& a) {
  const std::string_view name = a.group.empty() ? a.group_id : a.group;
  if (name.empty()) return -1;
  constexpr std::size_t kLongest = 1 << 20;  // PyTorch cuts lists at 30 items
  GroupRecord g{.name = std::string(unquoted(name).substr(0, kLongest)),
                .ranks = std::string(unquoted(a.ranks).substr(0, kLongest))};
  g.start = parse_whole(a.rank_start).value_or(-1);
  g.stride = parse_whole(a.rank_stride).value_or(-1);
  g.size = small_number(a.group_size);
  return group_index(std::move(g));
}

std::int32_t KinetoRecords::group_index(GroupRecord group) {
  // Few groups, and the last one used is the likeliest.
  const auto found = std::find(groups_.rbegin(), groups_.rend(), group);
  if (found != groups_.rend()) return static_cast<std::int32_t>(groups_.rend() - found) - 1;
  groups_.push_back(std::move(group));
  return static_cast<std::int32_t>(groups_.size()) - 1;
}

std::int32_t KinetoRecords::splits_of(const ArgTokens& a) {
  constexpr std::size_t kLongest = 1 << 20;
  if (a.in_splits.size() > kLongest || a.out_splits.size() > kLongest) return -1;
  auto in = parse_number_list(a.in_splits), out = parse_number_list(a.out_splits);
  if (!in || !out || (in->items.empty() && out->items.empty())) return -1;
  out_.splits.push_back(
      {.in = std::move(in->items), .out = std::move(out->items), .cut = in->cut || out->cut});
  return static_cast<std::int32_t>(out_.splits.size()) - 1;
}

/// The metadata of a collective as an index into KinetoTrace::args; -1: the event has none.
std::int32_t KinetoRecords::args_of(const ArgTokens& a) {
  if (a.collective.empty() && a.in_elements.empty()) return -1;
  CollectiveArgs c;
  const std::string_view name = unquoted(a.collective);
  c.op = op_of_collective_name(name);
  c.ignored = is_no_communication(name);
  if (c.op == CommOp::unknown && !c.ignored && !name.empty())
    ++out_.unknown_collectives[std::string(name.substr(0, 60))];
  c.in_elements = parse_whole(a.in_elements).value_or(-1);
  c.out_elements = parse_whole(a.out_elements).value_or(-1);
  const std::string_view type = unquoted(a.dtype);
  c.element_bytes = element_bytes_of(type);
  if (c.element_bytes > 0) c.dtype = dtype_of_type(type);
  c.group_size = small_number(a.group_size);
  c.sequence = parse_whole(a.sequence).value_or(-1);
  c.comms_id = parse_unsigned(a.comms_id).value_or(0);
  c.group = group_of(a);
  if (c.op == CommOp::all_to_all) c.splits = splits_of(a);
  out_.args.push_back(c);
  return static_cast<std::int32_t>(out_.args.size() - 1);
}

/// Shapes of an operator's first inputs, as an index into KinetoTrace::shapes; -1: none. An empty
/// list is the shape of a scalar tensor if the argument's type is an element type.
std::int32_t KinetoRecords::shapes_of(const ArgTokens& a) {
  constexpr std::size_t kMost = 6;  // a layer norm's weight is the sixth
  std::vector<TensorShape> shapes = shapes_of_first(a.dims, kMost);
  if (shapes.empty() || (shapes.front().empty() && !is_one_scalar(a.dims, a.types))) return -1;
  out_.shapes.push_back(std::move(shapes));
  return static_cast<std::int32_t>(out_.shapes.size() - 1);
}

void KinetoRecords::keep_device(const EventTokens& t, Span span, bool copy) {
  DeviceEvent e{.span = span, .tid = thread_of(t.tid), .copy = copy};
  e.to_device = copy && (t.name.find("HtoD") != std::string_view::npos ||
                         t.name.find("HostToDevice") != std::string_view::npos);
  e.correlation = parse_unsigned(t.args.correlation).value_or(0);
  e.external_id = parse_unsigned(t.args.external_id).value_or(0);
  if (!copy) {
    e.name = out_.names.intern(t.name);
    e.args = args_of(t.args);
    if (!t.args.grid.empty()) e.launch_size = hash_bytes(t.args.block, hash_bytes(t.args.grid));
  }
  out_.device.push_back(e);
}

/// Keeps an annotation of communication. Without metadata of its own, the shapes of its inputs give
/// a size.
void KinetoRecords::keep_mark(const EventTokens& t, Span span, std::int32_t name,
                              std::int64_t tid) {
  CommMark m{.span = span,
             .external_id = parse_unsigned(t.args.external_id).value_or(0),
             .tid = tid,
             .name = name};
  m.args = args_of(t.args);
  const std::int64_t elements =
      is_one_scalar(t.args.dims, t.args.types) ? 1 : elements_of_dims(t.args.dims);
  const NameInfo& info = out_.names[name];
  if (m.args < 0 && info.kind == NameKind::comm_mark && elements >= 0) {
    CollectiveArgs c;
    c.op = info.op;
    c.in_elements = elements;
    const TypeFound type = first_element_type(t.args.types);
    c.element_bytes = type.bytes;
    if (type.bytes > 0) c.dtype = dtype_of_type(type.name);
    out_.args.push_back(c);
    m.args = static_cast<std::int32_t>(out_.args.size() - 1);
  }
  out_.marks.push_back(m);
}

/// c10d::_allgather_base_(output, input, ...), c10d::allreduce_(tensors, ...): what goes in and
/// what comes out.
void KinetoRecords::keep_operator(const EventTokens& t, Span span, std::int32_t name,
                                  std::int64_t tid) {
  CollectiveArgs c;
  c.op = out_.names[name].op;
  const auto [first, second] = elements_of_first_two(t.args.dims);
  c.out_elements = first;
  // In place, or the parts of the ranks: the larger of the two is the whole array.
  c.in_elements = second >= 0 ? second : first;
  const TypeFound type = first_element_type(t.args.types);
  c.element_bytes = type.bytes;
  if (type.bytes > 0) c.dtype = dtype_of_type(type.name);
  out_.args.push_back(c);
  out_.operators.push_back({.span = span,
                            .tid = tid,
                            .name = name,
                            .args = static_cast<std::int32_t>(out_.args.size() - 1)});
}

/// Keeps an operator or annotation of the host by its name. It is a step, a mark of communication,
/// an operator that issues communication, or plain work. Plain annotations are a user's own, and
/// left out.
void KinetoRecords::keep_cpu(const EventTokens& t, Span span, bool annotation) {
  const std::int32_t name = out_.names.intern(t.name);
  const NameInfo& info = out_.names[name];
  const std::int64_t tid = thread_of(t.tid);
  if (info.kind == NameKind::step) {
    if (annotation) out_.steps.push_back({info.step, span}), out_.step_thread = tid;
    return;
  }
  if (info.kind == NameKind::comm_mark || info.kind == NameKind::param_comms)
    return keep_mark(t, span, name, tid);
  if (info.kind == NameKind::c10d) keep_operator(t, span, name, tid);
  if (annotation && info.kind == NameKind::plain) return;
  CpuOp op{.span = span, .tid = tid};
  op.name = name;
  if (has_shapes(info)) {
    op.shapes = shapes_of(t.args);
    if (const TypeFound type = first_element_type(t.args.types); type.bytes > 0)
      op.dtype = dtype_of_type(type.name);
  }
  out_.ops.push_back(op);
}

void KinetoRecords::event(EventCategory category, const EventTokens& t) {
  Span span;
  ++out_.own;
  if (!span_of(t, span)) return;
  switch (category) {
    case EventCategory::kernel:
      return keep_device(t, span, false);
    case EventCategory::copy:
      return keep_device(t, span, true);
    case EventCategory::launch:
      if (const auto id = parse_unsigned(t.args.correlation))
        out_.launches.push_back({*id, span.start_ns, span.end_ns, thread_of(t.tid)});
      return;
    case EventCategory::cpu_op:
      return keep_cpu(t, span, false);
    case EventCategory::annotation:
      return keep_cpu(t, span, true);
    case EventCategory::device_annotation:
      if (const NameInfo& info = out_.names[out_.names.intern(t.name)]; info.kind == NameKind::step)
        out_.device_steps.push_back({info.step, span});
      return;
    case EventCategory::other_device:
      ++out_.other_device;
      return;
    default:
      return;
  }
}

LaunchTimes::LaunchTimes(const KinetoTrace& t) : by_correlation_(t.launches) {
  std::ranges::sort(by_correlation_, {}, &Launch::correlation);
}

const Launch* LaunchTimes::of(std::uint64_t correlation) const {
  const auto at = std::ranges::lower_bound(by_correlation_, correlation, {}, &Launch::correlation);
  const bool found =
      correlation != 0 && at != by_correlation_.end() && at->correlation == correlation;
  return found ? &*at : nullptr;
}

DeviceClock::DeviceClock(const KinetoTrace& t, const LaunchTimes& launches) {
  for (const DeviceEvent& e : t.device) {
    if (e.copy || is_communication_kernel(t, e)) continue;
    if (const Launch* launch = launches.of(e.correlation))
      done_.push_back({launch->start_ns, e.span.end_ns});
  }
  std::ranges::sort(done_, {}, start_of);
  for (std::size_t i = 1; i < done_.size(); ++i)
    done_[i].end_ns = std::max(done_[i].end_ns, done_[i - 1].end_ns);
}

std::optional<std::int64_t> DeviceClock::work_done_by(std::int64_t host_ns) const {
  const Span* last = last_begun(done_, host_ns);
  return last == nullptr ? std::nullopt : std::optional(last->end_ns);
}

std::int64_t DeviceClock::done_by(std::int64_t host_ns) const {
  return std::max(host_ns, work_done_by(host_ns).value_or(host_ns));
}

}  // namespace linerate::trace
