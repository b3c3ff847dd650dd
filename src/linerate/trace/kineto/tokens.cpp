// The pass over the JSON, with simdjson's on-demand parser. Numbers and strings are taken as raw
// tokens. So times go from digits to nanoseconds without rounding, and ids above 2^63 never become
// a double.
//
// Tokens of an event become an Event, or nothing. This runs once for each event of a file, which
// may have millions. So names are interned, arguments are parsed only if the event uses them, and
// the last thread is remembered.
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/collective_names.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {
namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

/// What the "cat" of an event stands for, whatever the era.
enum class EventCategory : std::uint8_t {
  unknown,
  ignored,
  kernel,
  copy,
  other_device,  // of accelerators whose records are not understood here
  launch,
  cpu_op,
  annotation,
  device_annotation
};

/// The keys of "args" that matter; tokens as written, empty when absent.
struct ArgTokens {
  std::string_view external_id, correlation;
  std::string_view grid, block;  // of a kernel's launch
  std::string_view collective, in_elements, out_elements, dtype, in_splits, out_splits;
  std::string_view group, group_id, group_size, ranks, rank_start, rank_stride, sequence, comms_id;
  std::string_view dims, types;
};

struct EventTokens {
  std::string_view phase, category, name, tid, ts, dur;
  ArgTokens args;
};

/// Both sets of names, of 2020 and of today; upper case in 2021.
EventCategory category_of(std::string_view raw) {
  char low[24];
  if (raw.size() >= sizeof low) return EventCategory::ignored;
  std::ranges::transform(
      raw, low, [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const std::string_view c(low, raw.size());
  if (c == "cpu_op" || c == "operator") return EventCategory::cpu_op;
  if (c == "kernel") return EventCategory::kernel;
  if (c == "gpu_memcpy" || c == "gpu_memset" || c == "memcpy" || c == "memset")
    return EventCategory::copy;
  if (c == "user_annotation") return EventCategory::annotation;
  if (c == "gpu_user_annotation") return EventCategory::device_annotation;
  if (c == "mtia_ccp_events" || c == "collective_comm") return EventCategory::other_device;
  if (c.ends_with("runtime") || c.ends_with("driver")) return EventCategory::launch;
  return EventCategory::ignored;
}

/// What a list among the arguments is about. Lists are long, so they are read only for events for
/// which they mean something.
enum class ArgList : std::uint8_t {
  none,
  tensors,  // nested, of tensors' shapes or types
  launch    // sizes of a kernel's launch
};

/// A key of "args" and the token that its value becomes.
struct ArgKey {
  std::string_view name;
  std::string_view ArgTokens::*token;
  ArgList list = ArgList::none;
};
/// By first letter; if two keys have one token, files of one era have one of them.
constexpr std::array kArgKeys = {ArgKey{"Collective name", &ArgTokens::collective},
                                 ArgKey{"Comms Id", &ArgTokens::comms_id},
                                 ArgKey{"External id", &ArgTokens::external_id},
                                 ArgKey{"Global rank start", &ArgTokens::rank_start},
                                 ArgKey{"Global rank stride", &ArgTokens::rank_stride},
                                 ArgKey{"Group size", &ArgTokens::group_size},
                                 ArgKey{"In msg nelems", &ArgTokens::in_elements},
                                 ArgKey{"In msg size", &ArgTokens::in_elements},
                                 ArgKey{"In split size", &ArgTokens::in_splits},
                                 ArgKey{"Input Dims", &ArgTokens::dims, ArgList::tensors},
                                 ArgKey{"Input type", &ArgTokens::types, ArgList::tensors},
                                 ArgKey{"Out msg nelems", &ArgTokens::out_elements},
                                 ArgKey{"Out msg size", &ArgTokens::out_elements},
                                 ArgKey{"Out split size", &ArgTokens::out_splits},
                                 ArgKey{"Process Group ID", &ArgTokens::group_id},
                                 ArgKey{"Process Group Name", &ArgTokens::group},
                                 ArgKey{"Process Group Ranks", &ArgTokens::ranks},
                                 ArgKey{"Seq", &ArgTokens::sequence},
                                 ArgKey{"block", &ArgTokens::block, ArgList::launch},
                                 ArgKey{"correlation", &ArgTokens::correlation},
                                 ArgKey{"dtype", &ArgTokens::dtype},
                                 ArgKey{"external id", &ArgTokens::external_id},
                                 ArgKey{"grid", &ArgTokens::grid, ArgList::launch}};

/// Where in kArgKeys the keys with this first letter begin; those of letter c end where c + 1
/// begins.
constexpr std::array<std::uint8_t, 129> kFirstWithLetter = [] {
  std::array<std::uint8_t, 129> first{};
  for (std::size_t letter = 0; letter < first.size(); ++letter)
    for (const ArgKey& key : kArgKeys) first[letter] += to_index(key.name[0]) < letter;
  return first;
}();

/// The key that starts at `raw`, after its quote; null when it is none of these.
const ArgKey* arg_key_at(const char* raw) {
  const auto letter = static_cast<unsigned char>(raw[0]);
  if (letter >= 128) return nullptr;
  for (std::size_t i = kFirstWithLetter[letter]; i < kFirstWithLetter[letter + 1u]; ++i)
    if (key_is(raw, kArgKeys[i].name)) return &kArgKeys[i];
  return nullptr;
}

int small_number(std::string_view token) {
  const auto n = parse_whole(token);
  return n && *n >= 0 && *n < (1 << 24) ? static_cast<int>(*n) : -1;
}

/// Whether the shapes of its inputs are of interest.
bool has_shapes(const NameInfo& info) {
  return info.kind == NameKind::accumulate_grad || info.layer != LayerOperator::none;
}

template <typename T>
std::int32_t index_of_new(std::vector<T>& all, T item) {
  all.push_back(std::move(item));
  return static_cast<std::int32_t>(all.size()) - 1;
}

/// Fills a KinetoTrace from the tokens of a file.
class KinetoRecords {
 public:
  explicit KinetoRecords(KinetoTrace& out) : out_(out) {}

  /// What the head of the file says of the groups may follow the events, and a launch its kernel.
  /// Of several launches of one correlation the last one of the file counts.
  void finish() {
    out_.groups = resolve_groups(groups_, out_.configured, out_.world_size);
    std::unordered_map<std::uint64_t, std::int32_t> launches;  // by correlation
    for (const KinetoEvent& launch : out_.launches)
      launches[launch.correlation] = static_cast<std::int32_t>(&launch - out_.launches.data());
    for (KinetoEvent& e : out_.device)
      if (const auto launch = launches.find(e.correlation);
          e.correlation != 0 && launch != launches.end())
        e.launch = launch->second;
  }

  /// May the arguments of this event be passed over? Most of a file is operators of the host.
  bool needs_no_args(EventCategory category, std::string_view name) {
    if (category == EventCategory::device_annotation || category == EventCategory::other_device)
      return true;
    if ((category != EventCategory::cpu_op && category != EventCategory::annotation) ||
        name.empty())
      return false;
    const NameInfo& info = out_.names[out_.names.intern(name)];
    return info.kind != NameKind::comm_mark && info.kind != NameKind::param_comms &&
           info.kind != NameKind::c10d && !has_shapes(info);
  }

  /// A complete event ("ph": "X") of a category that is not ignored.
  void event(EventCategory category, const EventTokens& t) {
    ++out_.own;
    KinetoEvent e;
    if (!read_span(t, e.span)) return;
    switch (category) {
      case EventCategory::kernel:
      case EventCategory::copy:
        return keep_device(t, e, category == EventCategory::copy);
      case EventCategory::launch:
        if (const auto id = parse_unsigned(t.args.correlation)) {
          e.correlation = *id;
          e.tid = thread_of(t.tid);
          out_.launches.push_back(e);
        }
        return;
      case EventCategory::cpu_op:
      case EventCategory::annotation:
        return keep_host(t, e, category == EventCategory::annotation);
      case EventCategory::device_annotation:
        if (const NameInfo& info = out_.names[out_.names.intern(t.name)];
            info.kind == NameKind::step)
          out_.device_steps.push_back({info.step, e.span});
        return;
      case EventCategory::other_device:
        ++out_.other_device;
        return;
      default:
        return;
    }
  }

 private:
  /// False: it has no span, or one that cannot be; the trace counts why.
  bool read_span(const EventTokens& t, Span& span) {
    constexpr std::int64_t kDay = 86'400'000'000'000;
    if (t.dur.empty()) return ++out_.without_duration, false;
    const auto start = parse_us_as_ns(t.ts), duration = parse_us_as_ns(t.dur);
    if (!start || !duration) return ++out_.bad_time, false;
    if (*duration < 0 || *duration > kDay || *start > INT64_MAX / 4 || *start < -(INT64_MAX / 4))
      return ++out_.absurd, false;
    span = {*start, *start + *duration};
    return true;
  }

  std::int64_t thread_of(std::string_view token) {
    if (token == last_thread_token_) return last_thread_;  // as most are
    const auto n = parse_whole(token);
    last_thread_ =
        n ? *n : -1 - std::int64_t{thread_names_.intern(unquoted(token))};  // "Spans", ""
    last_thread_token_ = token;
    return last_thread_;
  }

  // These return an index into a list of the trace. -1: there is none.

  std::int32_t group_of(const ArgTokens& a) {
    const std::string_view name = a.group.empty() ? a.group_id : a.group;
    if (name.empty()) return -1;
    constexpr std::size_t kLongest = 1 << 20;  // PyTorch cuts lists at 30 items
    GroupRecord g{.name = std::string(unquoted(name).substr(0, kLongest)),
                  .ranks = std::string(unquoted(a.ranks).substr(0, kLongest))};
    g.start = parse_whole(a.rank_start).value_or(-1);
    g.stride = parse_whole(a.rank_stride).value_or(-1);
    g.size = small_number(a.group_size);
    // Few groups, and the last one used is the likeliest.
    const auto found = std::find(groups_.rbegin(), groups_.rend(), g);
    if (found != groups_.rend()) return static_cast<std::int32_t>(groups_.rend() - found) - 1;
    return index_of_new(groups_, std::move(g));
  }

  std::int32_t splits_of(const ArgTokens& a) {
    constexpr std::size_t kLongest = 1 << 20;
    if (a.in_splits.size() > kLongest || a.out_splits.size() > kLongest) return -1;
    auto in = parse_number_list(a.in_splits), out = parse_number_list(a.out_splits);
    if (!in || !out || (in->items.empty() && out->items.empty())) return -1;
    return index_of_new(out_.splits, SplitSizes{.in = std::move(in->items),
                                                .out = std::move(out->items),
                                                .cut = in->cut || out->cut});
  }

  /// The metadata of a collective.
  std::int32_t args_of(const ArgTokens& a) {
    if (a.collective.empty() && a.in_elements.empty()) return -1;
    CollectiveArgs c;
    const std::string_view name = unquoted(a.collective);
    c.op = op_of_collective_name(name);
    c.ignored = is_no_communication(name);
    if (c.op == CommOp::unknown && !c.ignored && !name.empty())
      ++out_.unknown_collectives[std::string(name.substr(0, 60))];
    c.in_elements = parse_whole(a.in_elements).value_or(-1);
    c.out_elements = parse_whole(a.out_elements).value_or(-1);
    c.type = element_type_of(unquoted(a.dtype));
    c.group_size = small_number(a.group_size);
    c.sequence = parse_whole(a.sequence).value_or(-1);
    c.comms_id = parse_unsigned(a.comms_id).value_or(0);
    c.group = group_of(a);
    if (c.op == CommOp::all_to_all) c.splits = splits_of(a);
    return index_of_new(out_.args, c);
  }

  /// Shapes of an operator's first inputs. An empty list is the shape of a scalar tensor if the
  /// argument's type is an element type.
  std::int32_t shapes_of(const ArgTokens& a) {
    constexpr std::size_t kMost = 6;  // a layer norm's weight is the sixth
    std::vector<TensorShape> shapes = shapes_of_first(a.dims, kMost);
    if (shapes.empty() || (shapes.front().empty() && !is_one_scalar(a.dims, a.types))) return -1;
    return index_of_new(out_.shapes, std::move(shapes));
  }

  void keep_device(const EventTokens& t, KinetoEvent& e, bool copy) {
    e.tid = thread_of(t.tid);
    e.copy = copy;
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

  /// Keeps an operator or annotation of the host by its name. It is a step, a mark of
  /// communication, an operator that issues communication, or plain work. Plain annotations are a
  /// user's own, and left out.
  void keep_host(const EventTokens& t, KinetoEvent& e, bool annotation) {
    e.name = out_.names.intern(t.name);
    const NameInfo& info = out_.names[e.name];
    e.tid = thread_of(t.tid);
    if (info.kind == NameKind::step) {
      if (annotation) out_.steps.push_back({info.step, e.span}), out_.step_thread = e.tid;
      return;
    }
    if (info.kind == NameKind::comm_mark || info.kind == NameKind::param_comms)
      return keep_mark(t, e, info);
    if (info.kind == NameKind::c10d) keep_operator(t, e, info);
    if (annotation && info.kind == NameKind::plain) return;
    if (has_shapes(info)) {
      e.shapes = shapes_of(t.args);
      if (const auto type = first_element_type(t.args.types)) e.dtype = type->dtype;
    }
    out_.ops.push_back(e);
  }

  /// Keeps an annotation of communication. Without metadata of its own, the shapes of its inputs
  /// give a size.
  void keep_mark(const EventTokens& t, KinetoEvent e, const NameInfo& info) {
    e.external_id = parse_unsigned(t.args.external_id).value_or(0);
    e.args = args_of(t.args);
    const std::int64_t elements =
        is_one_scalar(t.args.dims, t.args.types) ? 1 : elements_of_dims(t.args.dims);
    if (e.args < 0 && info.kind == NameKind::comm_mark && elements >= 0)
      e.args = index_of_new(out_.args, CollectiveArgs{.op = info.op,
                                                      .in_elements = elements,
                                                      .type = first_element_type(t.args.types)});
    out_.marks.push_back(e);
  }

  /// c10d::_allgather_base_(output, input, ...), c10d::allreduce_(tensors, ...): what goes in and
  /// what comes out. In place, or of the parts of the ranks, the larger of the two is the whole
  /// array.
  void keep_operator(const EventTokens& t, KinetoEvent e, const NameInfo& info) {
    const auto [first, second] = elements_of_first_two(t.args.dims);
    e.args = index_of_new(out_.args, CollectiveArgs{.op = info.op,
                                                    .in_elements = second >= 0 ? second : first,
                                                    .out_elements = first,
                                                    .type = first_element_type(t.args.types)});
    out_.operators.push_back(e);
  }

  KinetoTrace& out_;
  NameTable thread_names_;
  std::string last_thread_token_ = "?";  // no JSON
  std::int64_t last_thread_ = -1;
  std::vector<GroupRecord> groups_;
};

/// The container that a value is. False: it is something else, such as null. Throws at damage.
template <typename Container>
bool holds(simdjson::simdjson_result<Container> found, Container& out) {
  const error_code e = std::move(found).get(out);
  if (e && e != simdjson::INCORRECT_TYPE) throw simdjson::simdjson_error(e);
  return !e;
}

/// The text of a nested array, from its opening bracket to its end; empty if the value is none.
std::string_view raw_list(ondemand::value value) {
  ondemand::array list;
  return holds(value.get_array(), list) ? std::string_view(list.raw_json()) : std::string_view();
}

/// Reads a document of events. simdjson throws where the text is damaged.
class Scan {
 public:
  Scan(const std::string& source, const Progress& progress) : progress_(progress) {
    out_.source = source;
  }

  KinetoTrace read(const PaddedText& text) {
    text_begin_ = text.data();
    try {
      ondemand::document doc =
          parser_.iterate(text.data(), text.size(), text.size() + PaddedText::kPadding);
      read_root(doc);
      out_.end = saw_events_ ? ScanEnd::whole : ScanEnd::no_events;
    } catch (const simdjson::simdjson_error& e) {
      const bool no_memory = e.error() == simdjson::MEMALLOC || e.error() == simdjson::CAPACITY;
      out_.end = no_memory ? ScanEnd::out_of_memory : ScanEnd::damaged;
      out_.reason = simdjson::error_message(e.error());
    }
    records_.finish();
    return std::move(out_);
  }

 private:
  void read_root(ondemand::document& doc) {
    const ondemand::json_type type = doc.type();
    if (type == ondemand::json_type::array) return read_events(doc.get_array());
    ondemand::object root = doc.get_object();
    for (ondemand::field field : root) {
      const char* key = field.key().raw();
      if (key_is(key, "traceEvents")) {
        read_events(field.value().get_array());
      } else if (key_is(key, "baseTimeNanoseconds")) {
        const auto base_ns = parse_whole(field.value().raw_json_token()).value_or(0);
        out_.base_ns = std::abs(base_ns) > INT64_MAX / 4 ? 0 : base_ns;
      } else if (key_is(key, "distributedInfo")) {
        ondemand::object info;
        if (field.value().get_object().get(info) == simdjson::SUCCESS) read_distributed(info);
      }
    }
  }

  void read_distributed(ondemand::object info) {
    for (ondemand::field field : info) {
      const char* key = field.key().raw();
      if (key_is(key, "rank"))
        out_.rank = small_number(field.value().raw_json_token());
      else if (key_is(key, "world_size"))
        out_.world_size = small_number(field.value().raw_json_token());
      else if (key_is(key, "backend"))
        out_.backend = unquoted(field.value().raw_json_token());
      else if (key_is(key, "pg_config"))
        out_.configured = parse_configured_groups(raw_list(field.value()));
    }
  }

  /// One pass over the list. Elements that are no events are counted as strangers and passed over.
  void read_events(ondemand::array events) {
    saw_events_ = true;
    for (ondemand::value value : events) {
      EventTokens tokens;
      if (ondemand::object event; holds(value.get_object(), event)) read_event(event, tokens);
      if (tokens.phase.empty() && tokens.category.empty()) {
        ++out_.strangers;  // or a stray scalar or list between events
        continue;
      }
      if ((++out_.events & 0x3fff) == 0 && !tokens.name.empty() && progress_)
        progress_(to_index(tokens.name.data() - text_begin_));
    }
  }

  /// The keys of an event come in any order. An event of another phase than "X", or of no interest,
  /// is left as soon as a key says so. The parser then skips the rest of it.
  void read_event(ondemand::object event, EventTokens& t) {
    EventCategory category = EventCategory::unknown;
    for (ondemand::field field : event) {
      const char* key = field.key().raw();
      if (key_is(key, "ph")) {
        t.phase = unquoted(field.value().raw_json_token());
        if (t.phase != "X") return;  // flows, metadata, counters, instants
      } else if (key_is(key, "cat")) {
        t.category = unquoted(field.value().raw_json_token());
        category = category_of(t.category);
        if (category == EventCategory::ignored) return;
      } else if (key_is(key, "name")) {
        t.name = unquoted(field.value().raw_json_token());
      } else if (key_is(key, "ts")) {
        t.ts = field.value().raw_json_token();
      } else if (key_is(key, "tid")) {
        t.tid = field.value().raw_json_token();
      } else if (key_is(key, "dur")) {
        t.dur = field.value().raw_json_token();
      } else if (key_is(key, "args") && !records_.needs_no_args(category, t.name)) {
        // Not reached for most of the file: operators of the host.
        if (ondemand::object args; holds(field.value().get_object(), args))
          read_args(args, category, t.args);
      }
    }
    if (t.phase == "X" && category != EventCategory::unknown) records_.event(category, t);
  }

  /// `category` may still be unknown when args come first: then everything is taken.
  void read_args(ondemand::object args, EventCategory category, ArgTokens& a) {
    const auto skipped = category == EventCategory::kernel    ? ArgList::tensors
                         : category == EventCategory::unknown ? ArgList::none
                                                              : ArgList::launch;
    const bool launches = category == EventCategory::launch;
    for (ondemand::field field : args) {
      const ArgKey* key = arg_key_at(field.key().raw());
      if (key == nullptr) continue;
      const bool is_list = key->list != ArgList::none;
      if (is_list && (launches || key->list == skipped)) continue;
      a.*(key->token) = is_list ? raw_list(field.value()) : field.value().raw_json_token();
    }
  }

  KinetoTrace out_;
  const Progress& progress_;
  KinetoRecords records_{out_};
  ondemand::parser parser_;
  const char* text_begin_ = nullptr;
  bool saw_events_ = false;
};

}  // namespace

KinetoTrace scan_kineto(const PaddedText& text, const std::string& source,
                        const Progress& progress) {
  return Scan(source, progress).read(text);
}

}  // namespace linerate::trace
