#include "linerate/trace/kineto_records.hpp"

#include <algorithm>

#include "linerate/trace/decimal.hpp"
#include "linerate/trace/json_token.hpp"
#include "linerate/trace/kineto_names.hpp"

namespace linerate::trace {
namespace {

int small_number(std::string_view token) {
  const auto n = parse_whole(token);
  return n && *n >= 0 && *n < (1 << 24) ? static_cast<int>(*n) : -1;
}

}  // namespace

void KinetoRecords::file(const FileTokens& f) {
  out_.rank = small_number(f.rank);
  out_.world_size = small_number(f.world_size);
  out_.backend = unquoted(f.backend);
  out_.base_ns = parse_whole(f.base_time).value_or(0);
  if (std::abs(out_.base_ns) > INT64_MAX / 4) out_.base_ns = 0;
}

bool KinetoRecords::needs_no_args(EventCategory category, std::string_view name) {
  if ((category != EventCategory::cpu_op && category != EventCategory::annotation) || name.empty())
    return false;
  const NameKind kind = out_.names[out_.names.intern(name)].kind;
  return kind != NameKind::comm_mark && kind != NameKind::param_comms &&
         kind != NameKind::accumulate_grad;
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
  if (const auto n = parse_whole(token)) return *n;
  return -1 -
         static_cast<std::int64_t>(thread_names_.intern(unquoted(token)));  // "Spans", "Traces", ""
}

std::int32_t KinetoRecords::args_of(const ArgTokens& a) {
  if (a.collective.empty() && a.in_elements.empty()) return -1;
  CollectiveArgs c;
  const std::string_view name = unquoted(a.collective);
  c.op = op_of_collective_name(name);
  c.ignored = name == "wait" || name == "init";
  c.in_elements = parse_whole(a.in_elements).value_or(-1);
  c.out_elements = parse_whole(a.out_elements).value_or(-1);
  c.element_bytes = element_bytes_of(unquoted(a.dtype));
  c.group_size = static_cast<int>(
      std::clamp<std::int64_t>(parse_whole(a.group_size).value_or(-1), -1, 1 << 24));
  c.sequence = parse_whole(a.sequence).value_or(-1);
  if (!a.group.empty()) {
    // Groups of equal name exist side by side (tensor parallel): the ranks tell them apart, cut
    // lists included.
    const std::string key = std::string(unquoted(a.group)) + "|" + std::string(unquoted(a.ranks));
    c.group = group_names_.intern(key);
    if (static_cast<std::size_t>(c.group) == out_.groups.size()) out_.groups.push_back(key);
  }
  out_.args.push_back(c);
  return static_cast<std::int32_t>(out_.args.size() - 1);
}

void KinetoRecords::keep_device(const EventTokens& t, Span span, bool copy) {
  DeviceEvent e{.span = span, .copy = copy};
  e.correlation = parse_unsigned(t.args.correlation).value_or(0);
  e.external_id = parse_unsigned(t.args.external_id).value_or(0);
  if (!copy) {
    e.name = out_.names.intern(t.name);
    e.args = args_of(t.args);
  }
  out_.device.push_back(e);
}

void KinetoRecords::keep_mark(const EventTokens& t, Span span, std::int32_t name,
                              std::int64_t tid) {
  CommMark m{.span = span,
             .external_id = parse_unsigned(t.args.external_id).value_or(0),
             .tid = tid,
             .name = name};
  m.args = args_of(t.args);
  const std::int64_t elements = elements_of_dims(t.args.dims);
  const NameInfo& info = out_.names[name];
  if (m.args < 0 && info.kind == NameKind::comm_mark && elements >= 0) {
    CollectiveArgs c;
    c.op = info.op;
    c.in_elements = elements;
    c.element_bytes = first_element_type(t.args.types).bytes;
    out_.args.push_back(c);
    m.args = static_cast<std::int32_t>(out_.args.size() - 1);
  }
  out_.marks.push_back(m);
}

void KinetoRecords::keep_cpu(const EventTokens& t, Span span, bool annotation) {
  const std::int32_t name = out_.names.intern(t.name);
  const NameInfo& info = out_.names[name];
  const std::int64_t tid = thread_of(t.tid);
  if (info.kind == NameKind::step) {
    if (annotation) out_.steps.push_back({info.step, span});
    return;
  }
  if (info.kind == NameKind::comm_mark || info.kind == NameKind::param_comms)
    return keep_mark(t, span, name, tid);
  if (annotation && info.kind == NameKind::plain) return;
  CpuOp op{.span = span, .tid = tid};
  op.name = name;
  if (info.kind == NameKind::accumulate_grad || !t.args.autograd_sequence.empty()) {
    op.elements = elements_of_dims(t.args.dims);
    op.element_bytes = static_cast<std::int8_t>(first_element_type(t.args.types).bytes);
  }
  op.sequence = parse_whole(t.args.autograd_sequence).value_or(-1);
  op.backward = parse_whole(t.args.forward_thread).value_or(0) > 0;
  out_.ops.push_back(op);
}

void KinetoRecords::event(EventCategory category, const EventTokens& t) {
  Span span;
  if (!span_of(t, span)) return;
  switch (category) {
    case EventCategory::kernel:
      return keep_device(t, span, false);
    case EventCategory::copy:
      return keep_device(t, span, true);
    case EventCategory::launch:
      if (const auto id = parse_unsigned(t.args.correlation))
        out_.launches.push_back({*id, span.start_ns, thread_of(t.tid)});
      return;
    case EventCategory::cpu_op:
      return keep_cpu(t, span, false);
    case EventCategory::annotation:
      return keep_cpu(t, span, true);
    default:
      return;
  }
}

}  // namespace linerate::trace
