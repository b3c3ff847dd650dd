#include "linerate/trace/input/input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "linerate/core/error.hpp"

namespace linerate::trace {

struct Input::State {
  static constexpr std::size_t kBlock = 256 * 1024;

  std::string name;
  std::string memory;  // from_memory: the raw bytes
  std::size_t memory_at = 0;
  int fd = -1;
  std::size_t size_hint = 0;  // of the raw bytes, 0 when unknown
  bool gzip = false, finished = false, truncated = false, in_member = false;
  z_stream zip{};
  std::vector<char> raw;    // compressed block
  std::vector<char> ready;  // decompressed bytes not yet taken: [at, end)
  std::size_t at = 0, end = 0;
  std::string line;
  std::size_t line_number = 0;
  bool cut = false;

  ~State() {
    if (fd >= 0) ::close(fd);
    if (gzip) inflateEnd(&zip);
  }
  std::size_t read_raw(char* into, std::size_t n);
  std::size_t read_gzip(char* into, std::size_t n);
  /// Decompressed bytes; 0 at the end.
  std::size_t read(char* into, std::size_t n) {
    return gzip ? read_gzip(into, n) : read_raw(into, n);
  }
  void start();
  bool fill();
};

std::size_t Input::State::read_raw(char* into, std::size_t n) {
  if (fd < 0) {
    n = std::min(n, memory.size() - memory_at);
    std::memcpy(into, memory.data() + memory_at, n);
    memory_at += n;
    return n;
  }
  for (;;) {
    const ssize_t got = ::read(fd, into, n);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR)
      throw InputError(name, fmt::format("cannot read: {}", std::strerror(errno)));
  }
}

std::size_t Input::State::read_gzip(char* into, std::size_t n) {
  if (finished) return 0;
  zip.next_out = reinterpret_cast<Bytef*>(into);
  zip.avail_out = static_cast<uInt>(std::min<std::size_t>(n, 1u << 30));
  const uInt wanted = zip.avail_out;
  while (zip.avail_out == wanted) {
    if (zip.avail_in == 0) {
      zip.avail_in = static_cast<uInt>(read_raw(raw.data(), raw.size()));
      zip.next_in = reinterpret_cast<Bytef*>(raw.data());
      if (zip.avail_in == 0) {
        finished = true;
        truncated = truncated || in_member;
        break;
      }
    }
    in_member = true;
    const int status = inflate(&zip, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {  // another member may follow (pigz, concatenated files)
      in_member = false;
      inflateReset(&zip);
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      finished = truncated = true;
      break;
    }
  }
  return wanted - zip.avail_out;
}

void Input::State::start() {
  ready.resize(kBlock);
  end = 0;
  while (end < 2) {
    const std::size_t got = read_raw(ready.data() + end, kBlock - end);
    if (got == 0) break;
    end += got;
  }
  if (end < 2 || static_cast<unsigned char>(ready[0]) != 0x1f ||
      static_cast<unsigned char>(ready[1]) != 0x8b)
    return;
  gzip = true;
  raw.assign(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(end));
  const std::size_t first = raw.size();
  raw.resize(kBlock);
  inflateInit2(&zip, 16 + MAX_WBITS);
  zip.next_in = reinterpret_cast<Bytef*>(raw.data());
  zip.avail_in = static_cast<uInt>(first);
  at = end = 0;
}

/// Moves what is left to the front and reads more behind it; false when nothing more came.
bool Input::State::fill() {
  if (at > 0) std::memmove(ready.data(), ready.data() + at, end - at);
  end -= at;
  at = 0;
  if (end == ready.size()) return false;
  const std::size_t got = read(ready.data() + end, ready.size() - end);
  end += got;
  return got > 0;
}

Input::Input(std::unique_ptr<State> state) : state_(std::move(state)) {}
Input::~Input() = default;
Input::Input(Input&&) noexcept = default;
Input& Input::operator=(Input&&) noexcept = default;

Input Input::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  state->name = path.string();
  state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state->fd < 0)
    throw InputError(state->name, fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat info {};
  if (::fstat(state->fd, &info) == 0) {
    if (S_ISDIR(info.st_mode)) throw InputError(state->name, "expected a file, found a folder");
    state->size_hint = static_cast<std::size_t>(std::max<off_t>(info.st_size, 0));
  }
  state->start();
  return Input(std::move(state));
}

Input Input::from_memory(std::string content, std::string name) {
  auto state = std::make_unique<State>();
  state->name = std::move(name);
  state->memory = std::move(content);
  state->size_hint = state->memory.size();
  state->start();
  return Input(std::move(state));
}

const std::string& Input::name() const { return state_->name; }
std::size_t Input::line_number() const { return state_->line_number; }
bool Input::line_was_cut() const { return state_->cut; }
bool Input::truncated() const { return state_->truncated; }

void Input::rethrow_with_cause(const std::string& what) const {
  if (!truncated()) throw;
  throw InputError(name(),
                   fmt::format("expected a whole gzip stream, found one that ends early or is "
                               "damaged; copy the file again. What came before: {}",
                               what));
}

std::string_view Input::head() {
  constexpr std::size_t kHead = 64 * 1024;
  while (state_->end - state_->at < kHead && state_->fill()) {
  }
  return {state_->ready.data() + state_->at, std::min(kHead, state_->end - state_->at)};
}

bool Input::next_line(std::string_view& line) {
  State& s = *state_;
  s.line.clear();
  s.cut = false;
  bool any = false;
  for (;;) {
    if (s.at == s.end) {
      s.at = s.end = 0;
      if (!s.fill()) break;
    }
    any = true;
    const char* from = s.ready.data() + s.at;
    const auto* stop = static_cast<const char*>(std::memchr(from, '\n', s.end - s.at));
    const std::size_t n = stop ? static_cast<std::size_t>(stop - from) : s.end - s.at;
    const std::size_t room = kLongestLine - s.line.size();
    s.line.append(from, std::min(n, room));
    s.cut = s.cut || n > room;
    s.at += n + (stop ? 1 : 0);
    if (stop) break;
  }
  if (!any) return false;
  ++s.line_number;
  if (!s.line.empty() && s.line.back() == '\r') s.line.pop_back();
  line = s.line;
  return true;
}

PaddedText Input::read_all() {
  State& s = *state_;
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

}  // namespace linerate::trace
