// One pass over the JSON of a PyTorch/Kineto trace with simdjson's on-demand parser. Numbers and
// strings are taken as raw tokens: times go from digits to nanoseconds, ids above 2^63 never become
// a double.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/decimal.hpp"
#include "linerate/trace/json_repair.hpp"
#include "linerate/trace/json_token.hpp"
#include "linerate/trace/kineto_names.hpp"
#include "linerate/trace/kineto_trace.hpp"

namespace linerate::trace {
namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

enum class Category : std::uint8_t { unknown, ignored, kernel, copy, launch, cpu_op, annotation };

/// Both sets of names, of 2020 and of today; upper case in 2021.
Category category_of(std::string_view raw) {
  char low[24];
  if (raw.size() >= sizeof low) return Category::ignored;
  std::transform(raw.begin(), raw.end(), low,
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::string_view c(low, raw.size());
  if (c == "cpu_op" || c == "operator") return Category::cpu_op;
  if (c == "kernel") return Category::kernel;
  if (c == "gpu_memcpy" || c == "gpu_memset" || c == "memcpy" || c == "memset")
    return Category::copy;
  if (c == "user_annotation") return Category::annotation;
  if (c.ends_with("runtime") || c.ends_with("driver")) return Category::launch;
  return Category::ignored;
}

/// The keys of "args" that matter; tokens as written, empty when absent.
struct ArgTokens {
  std::string_view external_id, correlation, collective, in_elements, out_elements, dtype,
      group_size, group, ranks, sequence, dims, types, autograd_sequence, forward_thread;
};

struct EventTokens {
  std::string_view phase, category, name, tid, ts, dur;
  ArgTokens args;
};

class Reader {
 public:
  Reader(KinetoTrace& out, const Progress& progress) : out_(out), progress_(progress) {}

  error_code read(PaddedText& text) {
    begin_ = text.data();
    ondemand::document doc;
    if (auto e =
            parser_.iterate(text.data(), text.size(), text.size() + PaddedText::kPadding).get(doc))
      return e;
    ondemand::json_type type;
    if (auto e = doc.type().get(type)) return e;
    if (type == ondemand::json_type::array) {
      ondemand::array events;
      if (auto e = doc.get_array().get(events)) return e;
      saw_events_ = true;
      return read_events(events);
    }
    ondemand::object root;
    if (auto e = doc.get_object().get(root)) return e;
    for (auto entry : root) {
      ondemand::field field;
      if (auto e = std::move(entry).get(field)) return e;
      if (auto e = read_root_field(field)) return e;
    }
    return simdjson::SUCCESS;
  }
  bool saw_events() const { return saw_events_; }

 private:
  error_code read_root_field(ondemand::field& field) {
    const char* key = field.key().raw();
    if (key_is(key, "traceEvents")) {
      ondemand::array events;
      if (auto e = field.value().get_array().get(events)) return e;
      saw_events_ = true;
      return read_events(events);
    }
    if (key_is(key, "baseTimeNanoseconds")) {
      out_.base_ns = parse_whole(field.value().raw_json_token()).value_or(0);
      if (std::abs(out_.base_ns) > INT64_MAX / 4) out_.base_ns = 0;
    } else if (key_is(key, "distributedInfo")) {
      ondemand::object info;
      if (field.value().get_object().get(info) == simdjson::SUCCESS) return read_distributed(info);
    }
    return simdjson::SUCCESS;
  }

  error_code read_distributed(ondemand::object info) {
    for (auto entry : info) {
      ondemand::field field;
      if (auto e = std::move(entry).get(field)) return e;
      const char* key = field.key().raw();
      const std::string_view token = field.value().raw_json_token();
      const auto small = [&token] {
        const auto n = parse_whole(token);
        return n && *n >= 0 && *n < (1 << 24) ? static_cast<int>(*n) : -1;
      };
      if (key_is(key, "rank"))
        out_.rank = small();
      else if (key_is(key, "world_size"))
        out_.world_size = small();
      else if (key_is(key, "backend"))
        out_.backend = unquoted(token);
    }
    return simdjson::SUCCESS;
  }

  error_code read_events(ondemand::array events) {
    for (auto element : events) {
      ondemand::object event;
      ondemand::value value;
      if (auto e = std::move(element).get(value)) return e;
      if (auto e = value.get_object().get(event)) {
        if (e == simdjson::INCORRECT_TYPE) continue;  // a stray scalar between events
        return e;
      }
      EventTokens tokens;
      if (auto e = read_event(event, tokens)) return e;
      if ((++out_.events & 0x3fff) == 0 && progress_ && !tokens.name.empty())
        progress_(static_cast<std::size_t>(tokens.name.data() - begin_));
    }
    return simdjson::SUCCESS;
  }

  error_code read_event(ondemand::object event, EventTokens& t) {
    Category category = Category::unknown;
    for (auto entry : event) {
      ondemand::field field;
      if (auto e = std::move(entry).get(field)) return e;
      const char* key = field.key().raw();
      switch (key[0]) {
        case 'p':
          if (key_is(key, "ph")) {
            t.phase = unquoted(field.value().raw_json_token());
            if (t.phase != "X") return simdjson::SUCCESS;  // flows, metadata, counters, instants
          }
          break;
        case 'c':
          if (key_is(key, "cat")) {
            t.category = unquoted(field.value().raw_json_token());
            category = category_of(t.category);
            if (category == Category::ignored) return simdjson::SUCCESS;
          }
          break;
        case 'n':
          if (key_is(key, "name")) t.name = unquoted(field.value().raw_json_token());
          break;
        case 't':
          if (key_is(key, "ts"))
            t.ts = field.value().raw_json_token();
          else if (key_is(key, "tid"))
            t.tid = field.value().raw_json_token();
          break;
        case 'd':
          if (key_is(key, "dur")) t.dur = field.value().raw_json_token();
          break;
        case 'a':
          if (key_is(key, "args")) {
            if (needs_no_args(category, t.name)) break;  // most of the file: operators of the host
            ondemand::object args;
            if (auto e = field.value().get_object().get(args)) {
              if (e == simdjson::INCORRECT_TYPE) break;  // null
              return e;
            }
            if (auto e = read_args(args, category, t.args)) return e;
          }
          break;
        default:
          break;
      }
    }
    if (t.phase == "X" && category != Category::unknown) keep(t, category);
    return simdjson::SUCCESS;
  }

  bool needs_no_args(Category category, std::string_view name) {
    if ((category != Category::cpu_op && category != Category::annotation) || name.empty())
      return false;
    const NameKind kind = out_.names[out_.names.intern(name)].kind;
    return kind != NameKind::comm_mark && kind != NameKind::param_comms &&
           kind != NameKind::accumulate_grad;
  }

  /// `category` may still be unknown when args come first: then everything is taken.
  error_code read_args(ondemand::object args, Category category, ArgTokens& a) {
    for (auto entry : args) {
      ondemand::field field;
      if (auto e = std::move(entry).get(field)) return e;
      const char* key = field.key().raw();
      std::string_view* into = nullptr;
      switch (key[0]) {
        case 'E':
          if (key_is(key, "External id")) into = &a.external_id;
          break;
        case 'e':
          if (key_is(key, "external id")) into = &a.external_id;
          break;
        case 'c':
          if (key_is(key, "correlation")) into = &a.correlation;
          break;
        case 'C':
          if (key_is(key, "Collective name")) into = &a.collective;
          break;
        case 'O':
          if (key_is(key, "Out msg nelems") || key_is(key, "Out msg size")) into = &a.out_elements;
          break;
        case 'd':
          if (key_is(key, "dtype")) into = &a.dtype;
          break;
        case 'G':
          if (key_is(key, "Group size")) into = &a.group_size;
          break;
        case 'P':
          if (key_is(key, "Process Group Name") ||
              (key_is(key, "Process Group ID") && a.group.empty()))
            into = &a.group;
          else if (key_is(key, "Process Group Ranks"))
            into = &a.ranks;
          break;
        case 'S':
          if (key_is(key, "Seq"))
            into = &a.sequence;
          else if (key_is(key, "Sequence number"))
            into = &a.autograd_sequence;
          break;
        case 'F':
          if (key_is(key, "Fwd thread id")) into = &a.forward_thread;
          break;
        case 'I':
          if (key_is(key, "In msg nelems") || key_is(key, "In msg size"))
            into = &a.in_elements;
          else if (category != Category::kernel && category != Category::launch) {
            std::string_view* list = key_is(key, "Input Dims")   ? &a.dims
                                     : key_is(key, "Input type") ? &a.types
                                                                 : nullptr;
            if (list != nullptr)
              if (auto e = raw_list(field.value(), *list)) return e;
          }
          break;
        default:
          break;
      }
      if (into != nullptr) *into = field.value().raw_json_token();
    }
    return simdjson::SUCCESS;
  }

  /// The text of a nested array, from its opening bracket to its end.
  static error_code raw_list(ondemand::value value, std::string_view& text) {
    ondemand::array list;
    if (auto e = value.get_array().get(list))
      return e == simdjson::INCORRECT_TYPE ? simdjson::SUCCESS : e;
    return list.raw_json().get(text);
  }

  void keep(const EventTokens& t, Category category);
  bool span_of(const EventTokens& t, Span& span);
  std::int32_t args_of(const ArgTokens& a);
  void keep_device(const EventTokens& t, Span span, bool copy);
  void keep_cpu(const EventTokens& t, Span span, bool annotation);
  std::int64_t thread_of(std::string_view token);

  KinetoTrace& out_;
  const Progress& progress_;
  ondemand::parser parser_;
  const char* begin_ = nullptr;
  bool saw_events_ = false;
  NameTable group_names_, thread_names_;
};

bool Reader::span_of(const EventTokens& t, Span& span) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  if (t.dur.empty()) return ++out_.without_duration, false;
  const auto start = parse_us_as_ns(t.ts), duration = parse_us_as_ns(t.dur);
  if (!start || !duration) return ++out_.bad_time, false;
  if (*duration < 0 || *duration > kDay || *start > INT64_MAX / 4 || *start < -(INT64_MAX / 4))
    return ++out_.absurd, false;
  span = {*start, *start + *duration};
  return true;
}

std::int64_t Reader::thread_of(std::string_view token) {
  if (const auto n = parse_whole(token)) return *n;
  return -1 -
         static_cast<std::int64_t>(thread_names_.intern(unquoted(token)));  // "Spans", "Traces", ""
}

std::int32_t Reader::args_of(const ArgTokens& a) {
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

void Reader::keep_device(const EventTokens& t, Span span, bool copy) {
  DeviceEvent e{.span = span, .copy = copy};
  e.correlation = parse_unsigned(t.args.correlation).value_or(0);
  e.external_id = parse_unsigned(t.args.external_id).value_or(0);
  if (!copy) {
    e.name = out_.names.intern(t.name);
    e.args = args_of(t.args);
  }
  out_.device.push_back(e);
}

void Reader::keep_cpu(const EventTokens& t, Span span, bool annotation) {
  const std::int32_t name = out_.names.intern(t.name);
  const NameInfo& info = out_.names[name];
  const std::int64_t tid = thread_of(t.tid);
  if (info.kind == NameKind::step) {
    if (annotation) out_.steps.push_back({info.step, span});
    return;
  }
  const bool mark = info.kind == NameKind::comm_mark || info.kind == NameKind::param_comms;
  std::int64_t elements = -1;
  TypeFound type;
  if (mark || info.kind == NameKind::accumulate_grad || !t.args.autograd_sequence.empty()) {
    elements = elements_of_dims(t.args.dims);
    type = first_element_type(t.args.types);
  }
  if (mark) {
    CommMark m{.span = span,
               .external_id = parse_unsigned(t.args.external_id).value_or(0),
               .tid = tid,
               .name = name};
    m.args = args_of(t.args);
    if (m.args < 0 && info.kind == NameKind::comm_mark && elements >= 0) {
      CollectiveArgs c;
      c.op = info.op;
      c.in_elements = elements;
      c.element_bytes = type.bytes;
      out_.args.push_back(c);
      m.args = static_cast<std::int32_t>(out_.args.size() - 1);
    }
    out_.marks.push_back(m);
    return;
  }
  if (annotation && info.kind == NameKind::plain) return;
  CpuOp op{.span = span, .tid = tid};
  op.name = name;
  op.sequence = parse_whole(t.args.autograd_sequence).value_or(-1);
  op.elements = elements;
  op.element_bytes = static_cast<std::int8_t>(type.bytes);
  op.backward = parse_whole(t.args.forward_thread).value_or(0) > 0;
  out_.ops.push_back(op);
}

void Reader::keep(const EventTokens& t, Category category) {
  Span span;
  if (!span_of(t, span)) return;
  switch (category) {
    case Category::kernel:
      return keep_device(t, span, false);
    case Category::copy:
      return keep_device(t, span, true);
    case Category::launch:
      if (const auto id = parse_unsigned(t.args.correlation))
        out_.launches.push_back({*id, span.start_ns, thread_of(t.tid)});
      return;
    case Category::cpu_op:
      return keep_cpu(t, span, false);
    case Category::annotation:
      return keep_cpu(t, span, true);
    default:
      return;
  }
}

void note_rejects(KinetoTrace& t) {
  const auto note = [&t](std::size_t n, const char* what) {
    if (n > 0)
      t.notes.push_back(fmt::format("{}: {} events {}; they are left out", t.source, n, what));
  };
  note(t.without_duration, "have no \"dur\"");
  note(t.bad_time, "have a \"ts\" or \"dur\" that is no number");
  note(t.absurd, "last longer than a day, less than nothing, or lie beyond 64 bits");
}

KinetoTrace parsed(PaddedText& text, const std::string& name, const Progress& progress,
                   error_code& error) {
  KinetoTrace trace;
  trace.source = name;
  Reader reader(trace, progress);
  error = reader.read(text);
  if (!error && !reader.saw_events()) error = simdjson::NO_SUCH_FIELD;
  return trace;
}

}  // namespace

bool is_kineto(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  return first != std::string_view::npos && (head[first] == '{' || head[first] == '[');
}

KinetoTrace read_kineto(PaddedText text, const std::string& name, const Progress& progress) {
  error_code error;
  KinetoTrace trace = parsed(text, name, progress, error);
  if (error == simdjson::NO_SUCH_FIELD)
    throw InputError(name, "valid JSON, but no \"traceEvents\" in it: not a PyTorch trace");
  if (error == simdjson::MEMALLOC || error == simdjson::CAPACITY)
    throw InputError(name,
                     fmt::format("{} bytes of JSON need more memory than there is", text.size()));
  if (error) {
    const Repairs repairs = repair_json(text);
    error_code again;
    trace = parsed(text, name, progress, again);
    if (again && again != simdjson::NO_SUCH_FIELD)
      throw InputError(name,
                       fmt::format("not a trace, or damaged beyond mending after event {}: {}",
                                   trace.events, simdjson::error_message(again)));
    if (again)
      throw InputError(
          name, fmt::format("no \"traceEvents\" in it, and broken JSON: {}", repairs.text()));
    trace.notes.push_back(fmt::format("{}: damaged JSON was mended: {}", name, repairs.text()));
  }
  if (trace.events == 0)
    trace.notes.push_back(fmt::format("{}: the list of events is empty", name));
  if (trace.rank < 0) trace.rank = rank_in_name(name);
  note_rejects(trace);
  std::stable_sort(trace.steps.begin(), trace.steps.end(),
                   [](const StepSpan& a, const StepSpan& b) { return a.number < b.number; });
  return trace;
}

}  // namespace linerate::trace
