// Text in memory as simdjson wants it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct gzFile_s;  // of zlib

namespace linerate::trace {

/// Text followed by the zeroed bytes that simdjson may read past its end. It can be written,
/// because damaged JSON is mended in place. Memory grows by realloc, which moves pages of large
/// texts instead of bytes.
class PaddedText {
 public:
  static constexpr std::size_t kPadding = 64;

  PaddedText() = default;
  explicit PaddedText(std::size_t capacity) { reserve(capacity); }
  explicit PaddedText(std::string_view content);

  /// Keeps the content; the padding after it becomes zero. Throws InputError when memory is short.
  void reserve(std::size_t capacity);
  void resize(std::size_t size);
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }
  std::string_view view() const { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> data_;
  std::size_t size_ = 0, capacity_ = 0;
};

// The bytes of a trace or log: plain or gzip (recognised by the bytes 1f 8b at its start, never by
// its name).

/// One pass over a file from front to back, either whole or line by line. Memory: one block of 256
/// KiB plus what the caller keeps.
class InputFile {
 public:
  /// Longer lines are cut here: no format has them, and a 1 GB line must not take 1 GB.
  static constexpr std::size_t kLongestLine = 1 << 20;
  /// More than any JSON parser index of 32 bits reaches.
  static constexpr std::size_t kLargest = 0xfff00000u;

  /// Throws InputError naming the file and the system's reason.
  static InputFile open(const std::filesystem::path& path);
  /// Content as it is: gzip is unpacked from files alone.
  static InputFile from_memory(std::string content, std::string name);

  const std::string& name() const { return name_; }
  /// The first bytes (up to 64 KiB) after decompression, without consuming them.
  std::string_view head();
  /// The next line without its line end; false at the end. Valid until the next call.
  bool next_line(std::string_view& line);
  std::size_t line_number() const { return line_number_; }
  /// All that is left. Throws InputError above kLargest.
  PaddedText read_all();
  /// The gzip stream ended early or is damaged: what was read before is good.
  bool truncated() const { return truncated_; }
  /// After an error: the same error, led by the gzip stream that ends early if that is its cause.
  /// For use in a catch block; never returns.
  [[noreturn]] void rethrow_with_cause(const std::string& what) const;

 private:
  static constexpr std::size_t kBlock = 256 * 1024;
  struct Close {
    void operator()(gzFile_s* file) const;
  };

  explicit InputFile(std::string name) : name_(std::move(name)) {}
  void attach(int fd);
  std::size_t read(char* into, std::size_t n);
  bool fill();

  std::string name_;
  bool begun_ = false;                     // read from, and its byte order mark passed over
  std::unique_ptr<gzFile_s, Close> file_;  // also reads what is not compressed, as it is
  std::string memory_;                     // from_memory: read in place of a file
  std::size_t memory_at_ = 0;
  std::size_t size_hint_ = 0;  // of the raw bytes, 0 when unknown
  bool gzip_ = false, truncated_ = false;
  std::vector<char> ready_ = std::vector<char>(kBlock);  // bytes not yet taken: [at, end)
  std::size_t at_ = 0, end_ = 0;
  std::string line_;
  std::size_t line_number_ = 0;
};

/// Bytes of JSON done so far, by one reader; called every few MB. Empty: not wanted.
using Progress = std::function<void(std::size_t done)>;

// Private: raw JSON tokens as simdjson hands them out (quotes and trailing blanks included).

/// Does the key that starts at `raw` (after its quote) equal `name`? Reads at most name.size() + 1
/// bytes, which the padding covers.
inline bool key_is(const char* raw, std::string_view name) {
  return std::memcmp(raw, name.data(), name.size()) == 0 && raw[name.size()] == '"';
}

inline bool is_json_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// The token without trailing blanks and quotes, escapes left as they are.
inline std::string_view unquoted(std::string_view token) {
  while (!token.empty() && is_json_blank(token.back())) token.remove_suffix(1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"')
    token = token.substr(1, token.size() - 2);
  return token;
}

// Private: numbers of a trace, read from their digits. A double holds an epoch microsecond to 0.25
// us only.

/// Decimal text times 10^scale as a whole number, rounded half away from zero. The text may be
/// quoted and may have an exponent. nullopt: it is no number, or it leaves 63 bits. Example:
/// "1734001122334455.678" at scale 3 gives 1734001122334455678.
std::optional<std::int64_t> parse_scaled(std::string_view text, int scale);
/// Microseconds to nanoseconds, exactly.
inline std::optional<std::int64_t> parse_us_as_ns(std::string_view text) {
  return parse_scaled(text, 3);
}
inline std::optional<std::int64_t> parse_whole(std::string_view text) {
  return parse_scaled(text, 0);
}
/// Whole numbers up to 2^64 - 1 (Comms Id, correlation), optionally quoted.
std::optional<std::uint64_t> parse_unsigned(std::string_view text);

// Mends JSON as real traces break it: a parser of the standard rejects the whole file for one of
// these.

struct Repairs {
  std::size_t control_characters = 0;  // raw newlines and the like inside strings, now blanks
  std::size_t inner_quotes = 0;        // unescaped quotes inside strings, now apostrophes
  std::size_t bad_utf8 = 0;            // bytes that are no UTF-8, now '?'
  std::size_t cut_bytes = 0;  // dropped after the last whole element of a file that ends early
  bool truncated = false;
  /// A writer that was stopped may have begun its list again in the same file. The lists are one
  /// now. For each begin but the first: how many whole elements stand before it.
  std::vector<std::size_t> begins_anew = {};

  bool any() const {
    return control_characters + inner_quotes + bad_utf8 + cut_bytes + begins_anew.size() > 0 ||
           truncated;
  }
  /// One line for people.
  std::string text() const;
};

/// One pass over the text, in place. A truncated file is cut after its last whole array element or
/// member and closed.
Repairs repair_json(PaddedText& text);

}  // namespace linerate::trace
