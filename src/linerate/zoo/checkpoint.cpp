// A checkpoint is one file, written whole and renamed into its place. The hash at its end covers
// everything before it. So a file that is cut off or changed anywhere is refused before any of it
// is used.
//
// The format: a magic line, eight bytes with the length of the head, the head as JSON, the arrays'
// bytes, and eight bytes of hash. The head lists the arrays' names, types and shapes, in the order
// of their bytes.
#include "linerate/zoo/checkpoint.hpp"

#include "linerate/core/error.hpp"
#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::zoo {
namespace {

constexpr doc::DocumentKind kCheckpointHead{"checkpoint"};
constexpr std::string_view kMagic = "linerate checkpoint 1\n";
constexpr std::size_t kWord = 8;

// Eight bytes, little endian, whatever the machine.
void append_word(std::string& text, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

std::uint64_t word_at(std::string_view text, std::size_t at) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(text[at + to_index(i)]);
  return value;
}

std::int64_t bytes_of(const Array& array) {
  std::int64_t bytes = size_of(array.dtype);
  for (const std::int64_t n : array.shape) bytes *= n;
  return bytes;
}

// Settings are texts: what they mean is the trainer's.
doc::Json head_of(const Checkpoint& c) {
  doc::Json head = doc::new_document(kCheckpointHead);
  head["settings"] = doc::Json::object();
  for (const auto& [key, value] : c.settings) head["settings"][key] = value;
  head["epoch"] = c.epoch;
  head["step_in_epoch"] = c.step_in_epoch;
  head["step"] = c.step;
  head["arrays"] = doc::Json::array();
  for (const Array& a : c.arrays)
    head["arrays"].push_back(
        {{"name", a.name}, {"dtype", std::string(name_of(a.dtype))}, {"shape", a.shape}});
  return head;
}

void read_head(const doc::JsonReader& head, Checkpoint& c) {
  doc::expect_document(head, kCheckpointHead);
  for (const auto& [key, value] : head.at("settings").value().items())
    c.settings[key] = value.get<std::string>();
  c.epoch = head.at("epoch").integer();
  c.step_in_epoch = head.at("step_in_epoch").integer();
  c.step = head.at("step").integer();
  for (const doc::JsonReader& row : head.at("arrays").items()) {
    Array array{row.at("name").string(), parse_dtype(row.at("dtype").string()), {}, {}};
    for (const doc::JsonReader& n : row.at("shape").items()) array.shape.push_back(n.integer());
    c.arrays.push_back(std::move(array));
  }
}

}  // namespace

std::string encode(const Checkpoint& c) {
  const std::string head = head_of(c).dump();
  std::string content(kMagic);
  append_word(content, head.size());
  content += head;
  for (const Array& array : c.arrays) {
    LINERATE_CHECK(static_cast<std::int64_t>(array.bytes.size()) == bytes_of(array), array.name);
    content += array.bytes;
  }
  append_word(content, hash_words(content));
  return content;
}

// Checks magic line, length, hash, head and arrays in this order. Sizes in the head are not
// trusted: each is compared with the bytes that are left.
Checkpoint decode(std::string_view content, const std::string& place) {
  if (!content.starts_with(kMagic))
    throw InputError(place, "expected a checkpoint of linerate (format 1), found something else");
  const auto cut_off = [&]() -> InputError {
    return {place, "the checkpoint is cut off or damaged (" + std::to_string(content.size()) +
                       " bytes, hash does not match); use an older one or start anew"};
  };
  if (content.size() < kMagic.size() + 2 * kWord) throw cut_off();
  const std::string_view body = content.substr(0, content.size() - kWord);
  if (hash_words(body) != word_at(content, body.size())) throw cut_off();
  std::size_t at = kMagic.size() + kWord;
  const std::uint64_t head_size = word_at(content, kMagic.size());
  if (head_size > body.size() - at) throw cut_off();
  Checkpoint c;
  const doc::Json head = doc::parse_json(std::string(body.substr(at, head_size)), place);
  read_head(doc::JsonReader(head, place), c);
  at += head_size;
  for (Array& array : c.arrays) {
    const auto bytes = to_index(bytes_of(array));
    if (bytes > body.size() - at) throw cut_off();
    array.bytes = body.substr(at, bytes);
    at += bytes;
  }
  return c;
}

std::filesystem::path checkpoint_file(const std::filesystem::path& folder) {
  return folder / "checkpoint";
}

}  // namespace linerate::zoo
