// Text in memory as simdjson wants it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  static InputFile from_memory(std::string content, std::string name);
  ~InputFile();
  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) noexcept;

  const std::string& name() const;
  /// The first bytes (up to 64 KiB) after decompression, without consuming them.
  std::string_view head();
  /// The next line without its line end; false at the end. Valid until the next call.
  bool next_line(std::string_view& line);
  std::size_t line_number() const;
  /// All that is left. Throws InputError above kLargest.
  PaddedText read_all();
  /// The gzip stream ended early or is damaged: what was read before is good.
  bool truncated() const;
  /// After an error: the same error, led by the gzip stream that ends early if that is its cause.
  /// For use in a catch block; never returns.
  [[noreturn]] void rethrow_with_cause(const std::string& what) const;

 private:
  struct State;
  explicit InputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// How one file is read.

/// Bytes of JSON done so far, by one reader; called every few MB, from any of its threads, one call
/// at a time.
using Progress = std::function<void(std::size_t done)>;

/// The sum of what several readers report, each for itself.
class SharedProgress {
 public:
  /// `report` gets the sum; empty: not wanted.
  SharedProgress(Progress report, std::size_t readers)
      : report_(std::move(report)), done_(readers) {}

  /// For the reader `i`; valid as long as this lives.
  Progress of(std::size_t i) {
    if (!report_) return {};
    return [this, i](std::size_t bytes) {
      const std::lock_guard lock(mutex_);
      done_[i] = bytes;
      report_(std::accumulate(done_.begin(), done_.end(), std::size_t{0}));
    };
  }

 private:
  Progress report_;
  std::mutex mutex_;
  std::vector<std::size_t> done_;
};

struct ReadOptions {
  Progress progress = {};
};

}  // namespace linerate::trace
