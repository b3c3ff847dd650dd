// The pass over the JSON, with simdjson's on-demand parser, a slice of the events at a time.
// Numbers and strings are taken as raw tokens. So times go from digits to nanoseconds without
// rounding, and ids above 2^63 never become a double.
//
// A slice becomes a document of its own by a few bytes around it: the byte before it becomes "[",
// the comma after it "]". These bytes are put over the text and restored (Patch), which spares a
// copy of the file. The first slice of a thread's part is the exception. The byte before it is read
// by the thread of the part before, so that slice is copied.
//
// Example with three parts. Thread 0 reads the head of the file and part 0, threads 1 and 2 read
// parts 1 and 2. Part 2 ends with the rest of the file, such as distributedInfo, so its last slice
// is opened as {"traceEvents":[ and not closed. If a part ends in damage, parts after it are not
// added.
#include "linerate/trace/kineto/tokens.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <future>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/trace/input/json_token.hpp"

namespace linerate::trace {
namespace {

namespace ondemand = simdjson::ondemand;
using simdjson::error_code;

/// Both sets of names, of 2020 and of today; upper case in 2021.
EventCategory category_of(std::string_view raw) {
  char low[24];
  if (raw.size() >= sizeof low) return EventCategory::ignored;
  std::transform(raw.begin(), raw.end(), low,
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
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

PaddedText joined(std::string_view opening, std::string_view events, std::string_view closing) {
  PaddedText text;
  text.resize(opening.size() + events.size() + closing.size());
  char* end = std::copy(opening.begin(), opening.end(), text.data());
  end = std::copy(events.begin(), events.end(), end);
  std::copy(closing.begin(), closing.end(), end);
  return text;
}

/// Reads documents of events into one sink.
class Scan {
 public:
  explicit Scan(TokenSink& sink) : sink_(sink) {}

  error_code read_whole(const PaddedText& text) {
    text_begin_ = text.data();
    return read_document(text, {0, text.size()}, true);
  }

  /// What precedes the events, as a document of its own.
  error_code read_head(std::string_view head) {
    sliced_ = true;
    slice_ = PaddedText(std::string(head) + "]}");
    return read_document(slice_, {0, slice_.size()}, false);
  }

  /// The events of the range, a slice at a time.
  error_code read_slices(PaddedText& text, EventRange range, EventList list,
                         std::size_t slice_bytes) {
    sliced_ = true;
    const std::string_view events = text.view().substr(0, range.to);
    EventRange slice{range.from, range.from};
    do {
      slice.to = std::min(range.to, comma_between_events(events, slice.from + slice_bytes));
      const bool shared = slice.from == range.from && slice.from != list.first;
      if (auto e = read_slice(text, slice, shared, list)) return e;
      sink_.progress(slice.to - range.from);
      slice.from = slice.to + 1;
    } while (slice.to < range.to);
    return simdjson::SUCCESS;
  }

  /// Takes over what a scan of the next part found.
  void add(const Scan& next) {
    events_ += next.events_;
    strangers_ += next.strangers_;
    saw_events_ = saw_events_ || next.saw_events_;
    for (const auto token : {&FileTokens::base_time, &FileTokens::rank, &FileTokens::world_size,
                             &FileTokens::backend, &FileTokens::groups})
      if (!(next.file_.*token).empty()) file_.*token = next.file_.*token;
  }
  ScanResult result(error_code error) const;

 private:
  /// A few bytes around it make a slice a document. They are put over the text, unless what stands
  /// before the slice is shared: another thread reads it as the end of the part before.
  error_code read_slice(PaddedText& text, EventRange slice, bool shared, EventList list) {
    const bool last = slice.to == text.size();
    const std::string_view opening = last && list.inside_root ? R"({"traceEvents":[)" : "[";
    const std::string_view closing = last ? "" : "]";
    if (shared) {
      slice_ = joined(opening, text.view().substr(slice.from, slice.to - slice.from), closing);
      return read_document(slice_, {0, slice_.size()}, last);
    }
    const std::size_t from = slice.from - opening.size();
    const Patch open(text, from, opening), close(text, slice.to, closing);
    return read_document(text, {from, slice.to + closing.size()}, last);
  }

  /// `last`: what follows the document is of no interest.
  error_code read_document(const PaddedText& text, EventRange piece, bool last) {
    ondemand::document doc;
    const std::size_t room = text.size() - piece.from + PaddedText::kPadding;
    if (auto e = parser_.iterate(text.data() + piece.from, piece.to - piece.from, room).get(doc))
      return e;
    if (auto e = read_root(doc)) return e;
    // A slice in which more follows was cut in the wrong place.
    const bool ended = doc.current_location().error() == simdjson::OUT_OF_BOUNDS;
    return ended || last ? simdjson::SUCCESS : simdjson::TAPE_ERROR;
  }

  error_code read_root(ondemand::document& doc) {
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

  error_code read_root_field(ondemand::field& field) {
    const char* key = field.key().raw();
    if (key_is(key, "traceEvents")) {
      ondemand::array events;
      if (auto e = field.value().get_array().get(events)) return e;
      saw_events_ = true;
      return read_events(events);
    }
    if (key_is(key, "baseTimeNanoseconds")) {
      file_.base_time = field.value().raw_json_token();
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
      if (key_is(key, "rank"))
        file_.rank = field.value().raw_json_token();
      else if (key_is(key, "world_size"))
        file_.world_size = field.value().raw_json_token();
      else if (key_is(key, "backend"))
        file_.backend = field.value().raw_json_token();
      else if (key_is(key, "pg_config")) {
        std::string_view groups;
        if (auto e = raw_list(field.value(), groups)) return e;
        file_.groups = groups;
      }
    }
    return simdjson::SUCCESS;
  }

  /// One pass over the list. Elements that are no events are counted as strangers and passed over.
  error_code read_events(ondemand::array events) {
    for (auto element : events) {
      ondemand::object event;
      ondemand::value value;
      if (auto e = std::move(element).get(value)) return e;
      if (auto e = value.get_object().get(event)) {
        if (e != simdjson::INCORRECT_TYPE) return e;
        ++strangers_;  // a stray scalar or list between events
        continue;
      }
      EventTokens tokens;
      if (auto e = read_event(event, tokens)) return e;
      if (tokens.phase.empty() && tokens.category.empty()) {
        ++strangers_;
        continue;
      }
      if ((++events_ & 0x3fff) == 0 && !sliced_ && !tokens.name.empty())
        sink_.progress(to_index(tokens.name.data() - text_begin_));
    }
    return simdjson::SUCCESS;
  }

  /// The keys of an event come in any order. An event of another phase than "X", or of no interest,
  /// is left as soon as a key says so. The parser then skips the rest of it. Keys are told apart by
  /// their first letter before they are compared.
  error_code read_event(ondemand::object event, EventTokens& t) {
    EventCategory category = EventCategory::unknown;
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
            if (category == EventCategory::ignored) return simdjson::SUCCESS;
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
            if (sink_.needs_no_args(category, t.name))
              break;  // most of the file: operators of the host
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
    if (t.phase == "X" && category != EventCategory::unknown) sink_.event(category, t);
    return simdjson::SUCCESS;
  }

  /// `category` may still be unknown when args come first: then everything is taken.
  error_code read_args(ondemand::object args, EventCategory category, ArgTokens& a) {
    const auto skipped = category == EventCategory::kernel    ? ArgList::tensors
                         : category == EventCategory::unknown ? ArgList::none
                                                              : ArgList::launch;
    const bool launches = category == EventCategory::launch;
    for (auto entry : args) {
      ondemand::field field;
      if (auto e = std::move(entry).get(field)) return e;
      const ArgKey* key = arg_key_at(field.key().raw());
      if (key == nullptr) continue;
      const bool is_list = key->list != ArgList::none;
      if (is_list && (launches || key->list == skipped)) continue;
      std::string_view& token = a.*(key->token);
      if (!is_list)
        token = field.value().raw_json_token();
      else if (auto e = raw_list(field.value(), token))
        return e;
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

  TokenSink& sink_;
  ondemand::parser parser_;
  PaddedText slice_;
  FileTokens file_;
  const char* text_begin_ = nullptr;
  std::size_t events_ = 0, strangers_ = 0;
  bool saw_events_ = false, sliced_ = false;
};

ScanResult Scan::result(error_code error) const {
  ScanEnd end = saw_events_ ? ScanEnd::whole : ScanEnd::no_events;
  if (error) end = ScanEnd::damaged;
  if (error == simdjson::MEMALLOC || error == simdjson::CAPACITY) end = ScanEnd::out_of_memory;
  return {.end = end,
          .events = events_,
          .strangers = strangers_,
          .sliced = sliced_,
          .reason = simdjson::error_message(error),
          .file = file_};
}

/// The first part on this thread, each of the others on one of its own.
ScanResult scan_parts(PaddedText& text, EventList list, std::span<TokenSink* const> sinks,
                      std::size_t slice_bytes) {
  const std::vector<EventRange> ranges = cut_events(text.view(), list, sinks.size());
  std::deque<Scan> scans;  // parsers do not move
  for (std::size_t i = 0; i < ranges.size(); ++i) scans.emplace_back(*sinks[i]);
  const auto read = [&](std::size_t i) {
    return scans[i].read_slices(text, ranges[i], list, slice_bytes);
  };
  std::vector<std::future<error_code>> others;
  for (std::size_t i = 1; i < ranges.size(); ++i)
    others.push_back(std::async(std::launch::async, read, i));
  error_code error = simdjson::SUCCESS;
  if (list.inside_root) error = scans[0].read_head(text.view().substr(0, list.first));
  if (!error) error = read(0);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const error_code next = others[i - 1].get();
    if (error) continue;
    scans[0].add(scans[i]);
    error = next;
  }
  return scans[0].result(error);
}

}  // namespace

ScanResult scan_kineto(PaddedText& text, std::span<TokenSink* const> sinks,
                       std::size_t slice_bytes) {
  if (text.size() / 2 > slice_bytes)
    if (const auto list = find_event_list(text.view()))
      return scan_parts(text, *list, sinks, slice_bytes);
  Scan scan(*sinks.front());
  const error_code error = scan.read_whole(text);
  return scan.result(error);
}

// Looks for the end of an event as text, without parsing: "}", a comma, "{" and a key that events
// have. Parsing would have to begin at the start of the file. A text scan can begin anywhere, which
// is what lets several threads read one file.

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::array<std::string_view, 8> kEventKeys = {"ph",  "cat", "name", "pid",
                                                        "tid", "ts",  "dur",  "args"};

/// The first position at or after `at` that is no white space; text.size() at the end.
std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && kSpace.find(text[at]) != std::string_view::npos) ++at;
  return at;
}

bool is_at(std::string_view text, std::size_t at, char c) {
  return at < text.size() && text[at] == c;
}

bool event_key_at(std::string_view text, std::size_t at) {
  return is_at(text, at, '"') &&
         std::any_of(kEventKeys.begin(), kEventKeys.end(), [&](std::string_view key) {
           return text.substr(at + 1, key.size()) == key && is_at(text, at + 1 + key.size(), '"');
         });
}

}  // namespace

Patch::Patch(PaddedText& text, std::size_t at, std::string_view bytes)
    : at_(text.data() + at), saved_(at_, bytes.size()) {
  std::memcpy(at_, bytes.data(), bytes.size());
}
Patch::~Patch() { std::memcpy(at_, saved_.data(), saved_.size()); }

std::optional<EventList> find_event_list(std::string_view text) {
  const std::size_t root = skip_space(text, 0);
  if (is_at(text, root, '[')) return EventList{.first = root + 1};
  constexpr std::string_view kKey = "\"traceEvents\"";
  const std::size_t key = text.substr(0, 1 << 20).find(kKey);
  if (key == std::string_view::npos) return std::nullopt;
  const std::size_t colon = skip_space(text, key + kKey.size());
  if (!is_at(text, colon, ':')) return std::nullopt;
  const std::size_t bracket = skip_space(text, colon + 1);
  if (!is_at(text, bracket, '[')) return std::nullopt;
  return EventList{.first = bracket + 1, .inside_root = true};
}

std::size_t comma_between_events(std::string_view text, std::size_t from) {
  for (std::size_t at = from; (at = text.find('}', at)) != std::string_view::npos; ++at) {
    const std::size_t comma = skip_space(text, at + 1);
    if (!is_at(text, comma, ',')) continue;
    const std::size_t brace = skip_space(text, comma + 1);
    if (is_at(text, brace, '{') && event_key_at(text, skip_space(text, brace + 1))) return comma;
  }
  return std::string_view::npos;
}

std::vector<EventRange> cut_events(std::string_view text, EventList list, std::size_t parts) {
  std::vector<EventRange> ranges = {{list.first, text.size()}};
  const std::size_t length = (text.size() - list.first) / std::max<std::size_t>(1, parts);
  while (ranges.size() < parts) {
    const std::size_t from = ranges.back().from + length;
    const std::size_t comma = comma_between_events(text, from);
    if (comma == std::string_view::npos) break;
    ranges.back().to = comma;
    ranges.push_back({comma + 1, text.size()});
  }
  return ranges;
}

}  // namespace linerate::trace
