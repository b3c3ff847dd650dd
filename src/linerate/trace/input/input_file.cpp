// zlib reads gzip and plain files alike, one block at a time. Content in memory is read in place.
#include "linerate/trace/input/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/keep_memory.hpp"

namespace linerate::trace {

void InputFile::Close::operator()(gzFile_s* file) const { gzclose(file); }

/// Takes the descriptor, whose position is the beginning.
void InputFile::attach(int fd) {
  file_.reset(gzdopen(fd, "rb"));
  if (file_ == nullptr) {
    ::close(fd);
    throw InputError(name_, "cannot open: expected memory for zlib, found too little; free some");
  }
  gzip_ = gzdirect(file_.get()) == 0;
}

/// Decompressed bytes; 0 at the end and at damage.
std::size_t InputFile::read(char* into, std::size_t n) {
  if (file_ == nullptr) {
    n = std::min(n, memory_.size() - memory_at_);
    std::memcpy(into, memory_.data() + memory_at_, n);
    memory_at_ += n;
    return n;
  }
  // If the stream is damaged, gzread drops the whole block that it was asked for.
  constexpr std::size_t kLostAtDamage = 16 * 1024 - 1, kMost = 1 << 30;
  const int got =
      gzread(file_.get(), into, static_cast<unsigned>(std::min(n, gzip_ ? kLostAtDamage : kMost)));
  if (got > 0) return to_index(got);
  int error = Z_OK;
  const char* reason = gzerror(file_.get(), &error);
  if (error == Z_ERRNO || error == Z_MEM_ERROR)
    throw InputError(
        name_, fmt::format("cannot read: {}", error == Z_ERRNO ? std::strerror(errno) : reason));
  truncated_ = truncated_ || error != Z_OK;
  return 0;
}

/// Moves what is left to the front and reads more; false when nothing more came.
bool InputFile::fill() {
  if (at_ > 0) std::memmove(ready_.data(), ready_.data() + at_, end_ - at_);
  end_ -= at_;
  at_ = 0;
  if (end_ == ready_.size()) return false;
  const std::size_t got = read(ready_.data() + end_, ready_.size() - end_);
  end_ += got;
  if (!begun_ && std::string_view(ready_.data(), end_).starts_with("\xef\xbb\xbf")) at_ = 3;
  begun_ = true;
  return got > 0;
}

InputFile InputFile::open(const std::filesystem::path& path) {
  InputFile input(path.string());
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_with_errno(input.name_, "cannot open", errno);
  input.attach(fd);
  struct stat info {};
  if (::fstat(fd, &info) == 0) {
    if (S_ISDIR(info.st_mode)) throw InputError(input.name_, "expected a file, found a folder");
    input.size_hint_ = to_index(std::max<off_t>(info.st_size, 0));
  }
  return input;
}

InputFile InputFile::from_memory(std::string content, std::string name) {
  InputFile input(std::move(name));
  input.size_hint_ = content.size();
  input.memory_ = std::move(content);
  return input;
}

void InputFile::rethrow_with_cause(const std::string& what) const {
  if (!truncated()) throw;
  throw InputError(name(), fmt::format("expected a whole gzip stream, found one that ends early or "
                                       "is damaged; copy the file again. Before the damage: {}",
                                       what));
}

std::string_view InputFile::head() {
  constexpr std::size_t kHead = 64 * 1024;
  while (end_ - at_ < kHead && fill()) {
  }
  return {ready_.data() + at_, std::min(kHead, end_ - at_)};
}

/// A line may span several blocks; what is beyond kLongestLine is read and dropped.
bool InputFile::next_line(std::string_view& line) {
  line_.clear();
  bool any = false;
  for (;;) {
    if (at_ == end_) {
      at_ = end_ = 0;
      if (!fill()) break;
    }
    any = true;
    const char* from = ready_.data() + at_;
    const auto* stop = static_cast<const char*>(std::memchr(from, '\n', end_ - at_));
    const std::size_t n = stop ? to_index(stop - from) : end_ - at_;
    const std::size_t room = kLongestLine - line_.size();
    line_.append(from, std::min(n, room));
    at_ += n + (stop ? 1 : 0);
    if (stop) break;
  }
  if (!any) return false;
  ++line_number_;
  if (!line_.empty() && line_.back() == '\r') line_.pop_back();
  line = line_;
  return true;
}

/// Reads into a text that is as large as the file is expected to be, and doubles it if that was too
/// little. The block that head() had already read comes first.
PaddedText InputFile::read_all() {
  if (!begun_) fill();
  // gzip: traces shrink about tenfold; a wrong guess costs one copy.
  PaddedText text(std::clamp<std::size_t>(size_hint_ * (gzip_ ? 12 : 1) + 1, 4096, kLargest));
  std::size_t size = end_ - at_;
  text.reserve(size);
  std::memcpy(text.data(), ready_.data() + at_, size);
  at_ = end_ = 0;
  for (;;) {
    if (size == text.capacity()) {
      if (size >= kLargest)
        throw InputError(
            name_, fmt::format("more than {} bytes of JSON in one file; filter or split the trace",
                               kLargest));
      text.resize(size);
      text.reserve(std::min(kLargest, size * 2));
    }
    const std::size_t got = read(text.data() + size, text.capacity() - size);
    if (got == 0) break;
    size += got;
  }
  text.resize(size);
  return text;
}

PaddedText::PaddedText(std::string_view content) {
  reserve(content.size());
  std::memcpy(data(), content.data(), content.size());
  resize(content.size());
}

void PaddedText::reserve(std::size_t capacity) {
  if (capacity <= capacity_ && data_) return;
  const std::size_t wanted = (capacity + kPadding + 4095) / 4096 * 4096;
  char* grown = static_cast<char*>(std::realloc(data_.get(), wanted));
  if (grown == nullptr)
    throw InputError(
        "memory",
        fmt::format("expected {} bytes of free memory, found less; free some or filter the trace",
                    wanted));
  (void)data_.release();
  data_.reset(grown);
  prefer_large_pages(grown, wanted);
  capacity_ = wanted - kPadding;
  std::memset(grown + size_, 0, kPadding);
}

void PaddedText::resize(std::size_t size) {
  reserve(size);
  size_ = size;
  std::memset(data_.get() + size, 0, kPadding);
}

}  // namespace linerate::trace
