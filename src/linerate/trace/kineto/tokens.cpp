// The pass over the JSON, with simdjson's on-demand parser. Numbers and strings are taken as raw
// tokens. So times go from digits to nanoseconds without rounding, and ids above 2^63 never become
// a double.
#include "linerate/trace/kineto/tokens.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>

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

/// Reads a document of events.
class Scan {
 public:
  explicit Scan(TokenSink& sink) : sink_(sink) {}

  ScanResult read(const PaddedText& text) {
    text_begin_ = text.data();
    const error_code error = read_document(text);
    ScanEnd end = saw_events_ ? ScanEnd::whole : ScanEnd::no_events;
    if (error) end = ScanEnd::damaged;
    if (error == simdjson::MEMALLOC || error == simdjson::CAPACITY) end = ScanEnd::out_of_memory;
    return {.end = end,
            .events = events_,
            .strangers = strangers_,
            .reason = simdjson::error_message(error),
            .file = file_};
  }

 private:
  error_code read_document(const PaddedText& text) {
    ondemand::document doc;
    const std::size_t room = text.size() + PaddedText::kPadding;
    if (auto e = parser_.iterate(text.data(), text.size(), room).get(doc)) return e;
    return read_root(doc);
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
      if ((++events_ & 0x3fff) == 0 && !tokens.name.empty())
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
  FileTokens file_;
  const char* text_begin_ = nullptr;
  std::size_t events_ = 0, strangers_ = 0;
  bool saw_events_ = false;
};

}  // namespace

ScanResult scan_kineto(const PaddedText& text, TokenSink& sink) { return Scan(sink).read(text); }

}  // namespace linerate::trace
