// zlib reads gzip and plain files alike, one block at a time. Content in memory is read in place,
// and goes through a temporary file if it is gzip.
#include "linerate/trace/input/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/keep_memory.hpp"

namespace linerate::trace {

namespace {

/// The descriptor of a temporary file without a name that has this content, positioned at its
/// begin. It exists because zlib unpacks files only. The caller owns the descriptor.
int temporary_file_of(std::string_view content, const std::string& name) {
  std::FILE* const file = std::tmpfile();
  if (file == nullptr)
    throw InputError(name, fmt::format("cannot make a temporary file: {}", std::strerror(errno)));
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size() &&
                       std::fflush(file) == 0;
  const int fd = written ? ::dup(::fileno(file)) : -1;
  const int error = errno;
  std::fclose(file);
  if (fd < 0)
    throw InputError(name, fmt::format("cannot write a temporary file: {}", std::strerror(error)));
  ::lseek(fd, 0, SEEK_SET);
  return fd;
}

}  // namespace

struct InputFile::State {
  static constexpr std::size_t kBlock = 256 * 1024;

  std::string name;
  bool begun = false;     // read from, and its byte order mark passed over
  gzFile file = nullptr;  // also reads what is not compressed, as it is
  std::string memory;     // from_memory, not compressed: read in place of a file
  std::size_t memory_at = 0;
  std::size_t size_hint = 0;  // of the raw bytes, 0 when unknown
  bool gzip = false, truncated = false;
  std::vector<char> ready = std::vector<char>(kBlock);  // bytes not yet taken: [at, end)
  std::size_t at = 0, end = 0;
  std::string line;
  std::size_t line_number = 0;

  ~State() {
    if (file != nullptr) gzclose(file);
  }
  void attach(int fd);
  std::size_t read(char* into, std::size_t n);
  bool fill();
};

/// Takes the descriptor, whose position is the beginning.
void InputFile::State::attach(int fd) {
  file = gzdopen(fd, "rb");
  if (file == nullptr) {
    ::close(fd);
    throw InputError(name, "cannot open: expected memory for zlib, found too little; free some");
  }
  gzip = gzdirect(file) == 0;
}

/// Decompressed bytes; 0 at the end and at damage.
std::size_t InputFile::State::read(char* into, std::size_t n) {
  if (file == nullptr) {
    n = std::min(n, memory.size() - memory_at);
    std::memcpy(into, memory.data() + memory_at, n);
    memory_at += n;
    return n;
  }
  // If the stream is damaged, gzread drops the whole block that it was asked for.
  constexpr std::size_t kLostAtDamage = 16 * 1024 - 1, kMost = 1 << 30;
  const int got =
      gzread(file, into, static_cast<unsigned>(std::min(n, gzip ? kLostAtDamage : kMost)));
  if (got > 0) return to_index(got);
  int error = Z_OK;
  const char* reason = gzerror(file, &error);
  if (error == Z_ERRNO || error == Z_MEM_ERROR)
    throw InputError(
        name, fmt::format("cannot read: {}", error == Z_ERRNO ? std::strerror(errno) : reason));
  truncated = truncated || error != Z_OK;
  return 0;
}

/// Moves what is left to the front and reads more; false when nothing more came.
bool InputFile::State::fill() {
  if (at > 0) std::memmove(ready.data(), ready.data() + at, end - at);
  end -= at;
  at = 0;
  if (end == ready.size()) return false;
  const std::size_t got = read(ready.data() + end, ready.size() - end);
  end += got;
  if (!begun && std::string_view(ready.data(), end).starts_with("\xef\xbb\xbf")) at = 3;
  begun = true;
  return got > 0;
}

InputFile::InputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
InputFile::~InputFile() = default;
InputFile::InputFile(InputFile&&) noexcept = default;
InputFile& InputFile::operator=(InputFile&&) noexcept = default;

InputFile InputFile::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  state->name = path.string();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_with_errno(state->name, "cannot open", errno);
  state->attach(fd);
  struct stat info {};
  if (::fstat(fd, &info) == 0) {
    if (S_ISDIR(info.st_mode)) throw InputError(state->name, "expected a file, found a folder");
    state->size_hint = to_index(std::max<off_t>(info.st_size, 0));
  }
  return InputFile(std::move(state));
}

InputFile InputFile::from_memory(std::string content, std::string name) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  state->size_hint = content.size();
  if (content.starts_with("\x1f\x8b"))
    state->attach(temporary_file_of(content, state->name));
  else
    state->memory = std::move(content);
  return InputFile(std::move(state));
}

const std::string& InputFile::name() const { return state_->name; }
std::size_t InputFile::line_number() const { return state_->line_number; }
bool InputFile::truncated() const { return state_->truncated; }

void InputFile::rethrow_with_cause(const std::string& what) const {
  if (!truncated()) throw;
  throw InputError(name(), fmt::format("expected a whole gzip stream, found one that ends early or "
                                       "is damaged; copy the file again. Before the damage: {}",
                                       what));
}

std::string_view InputFile::head() {
  constexpr std::size_t kHead = 64 * 1024;
  while (state_->end - state_->at < kHead && state_->fill()) {
  }
  return {state_->ready.data() + state_->at, std::min(kHead, state_->end - state_->at)};
}

/// A line may span several blocks; what is beyond kLongestLine is read and dropped.
bool InputFile::next_line(std::string_view& line) {
  State& s = *state_;
  s.line.clear();
  bool any = false;
  for (;;) {
    if (s.at == s.end) {
      s.at = s.end = 0;
      if (!s.fill()) break;
    }
    any = true;
    const char* from = s.ready.data() + s.at;
    const auto* stop = static_cast<const char*>(std::memchr(from, '\n', s.end - s.at));
    const std::size_t n = stop ? to_index(stop - from) : s.end - s.at;
    const std::size_t room = kLongestLine - s.line.size();
    s.line.append(from, std::min(n, room));
    s.at += n + (stop ? 1 : 0);
    if (stop) break;
  }
  if (!any) return false;
  ++s.line_number;
  if (!s.line.empty() && s.line.back() == '\r') s.line.pop_back();
  line = s.line;
  return true;
}

/// Reads into a text that is as large as the file is expected to be, and doubles it if that was too
/// little. The block that head() had already read comes first.
PaddedText InputFile::read_all() {
  State& s = *state_;
  if (!s.begun) s.fill();
  // gzip: traces shrink about tenfold; a wrong guess costs one copy.
  PaddedText text(std::clamp<std::size_t>(s.size_hint * (s.gzip ? 12 : 1) + 1, 4096, kLargest));
  std::size_t size = s.end - s.at;
  text.reserve(size);
  std::memcpy(text.data(), s.ready.data() + s.at, size);
  s.at = s.end = 0;
  for (;;) {
    if (size == text.capacity()) {
      if (size >= kLargest)
        throw InputError(
            s.name, fmt::format("more than {} bytes of JSON in one file; filter or split the trace",
                                kLargest));
      text.resize(size);
      text.reserve(std::min(kLargest, size * 2));
    }
    const std::size_t got = s.read(text.data() + size, text.capacity() - size);
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
