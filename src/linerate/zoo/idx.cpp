// The format of MNIST: a magic number with element type and number of dimensions, the sizes, then
// the values, all big-endian. An example: 00 00 08 03, then 60000, 28 and 28, are 60,000 images of
// 28 x 28 bytes.
#include "linerate/zoo/idx.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::zoo {
namespace {

/// Reads a file, unpacked if it is packed; zlib reads a plain file as it is. Counts the bytes, so
/// that errors name the place.
class GzReader {
 public:
  explicit GzReader(const std::filesystem::path& path)
      : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_)
      throw InputError(path_.string(), std::string("cannot open: ") + std::strerror(errno));
  }
  ~GzReader() { gzclose(file_); }
  GzReader(const GzReader&) = delete;
  GzReader& operator=(const GzReader&) = delete;

  // In pieces, as zlib counts in 32 bits.
  void read(void* into, std::size_t bytes, const char* what) {
    auto* at = static_cast<std::uint8_t*>(into);
    for (std::size_t left = bytes; left > 0;) {
      const unsigned chunk = static_cast<unsigned>(std::min<std::size_t>(left, 1u << 26));
      const int got = gzread(file_, at, chunk);
      if (got <= 0) fail(what, bytes, bytes - left);
      at += got;
      left -= to_index(got);
    }
    position_ += bytes;
  }
  std::uint32_t big_endian(const char* what) {
    std::uint8_t b[4];
    read(b, 4, what);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }
  // Reads on: a file of an honest size ends here.
  bool at_end() {
    std::uint8_t byte;
    return gzread(file_, &byte, 1) <= 0;
  }
  [[noreturn]] void wrong(const std::string& message) const {
    throw InputError(path_.string() + ": byte " + std::to_string(position_), message);
  }

 private:
  [[noreturn]] void fail(const char* what, std::size_t wanted, std::size_t got) {
    int code = 0;
    const char* text = gzerror(file_, &code);
    if (code != Z_OK && code != Z_BUF_ERROR)
      wrong(std::string("cannot unpack: ") + text + "; the file is damaged, fetch it again");
    wrong("the file ends in its " + std::string(what) + ": expected " + std::to_string(wanted) +
          " bytes, found " + std::to_string(got) + "; it is cut off, fetch it again");
  }

  std::filesystem::path path_;
  gzFile file_;
  std::size_t position_ = 0;
};

// The file as it is named, or packed next to that name, as it is downloaded.
std::filesystem::path existing(const std::filesystem::path& path) {
  const std::filesystem::path packed = path.string() + ".gz";
  return !std::filesystem::exists(path) && std::filesystem::exists(packed) ? packed : path;
}

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  GzReader in(existing(path));
  const std::uint32_t magic = in.big_endian("magic number");
  const std::uint32_t dimensions = magic & 0xff;
  if (magic >> 8 != 8 || dimensions < 1 || dimensions > 4)
    in.wrong(
        "expected an IDX file of bytes (magic number 0x000008nn, nn = 1 to 4 dimensions), found " +
        std::to_string(magic));
  IdxArray array;
  std::int64_t total = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    array.shape.push_back(in.big_endian("sizes"));
    constexpr std::int64_t limit = std::int64_t{1} << 34;
    if (array.shape.back() > 0 && total > limit / array.shape.back())
      in.wrong("expected at most 16 GiB of values, found more");
    total *= array.shape.back();
  }
  // Piece by piece: a damaged size then ends in the message about the missing bytes, not in an
  // allocation of gigabytes.
  while (static_cast<std::int64_t>(array.values.size()) < total) {
    const std::size_t have = array.values.size();
    const std::size_t piece = std::min<std::size_t>(to_index(total) - have, 1u << 26);
    array.values.resize(have + piece);
    in.read(array.values.data() + have, piece, "values");
  }
  if (!in.at_end())
    in.wrong("expected the end of the file after " + std::to_string(total) + " values, found more");
  return array;
}

}  // namespace linerate::zoo
