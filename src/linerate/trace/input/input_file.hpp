// The bytes of a trace or log: plain or gzip (recognised by the bytes 1f 8b at its start, never by
// its name).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "linerate/trace/input/padded_text.hpp"

namespace linerate::trace {

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
  /// All that is left. Throws InputError above kLargest. A large plain file is read by so many
  /// threads at the same time.
  PaddedText read_all(unsigned threads = 1);
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

}  // namespace linerate::trace
