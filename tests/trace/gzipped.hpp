// Text as gzip makes it, and files of it.
#pragma once

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <string>

#include "linerate/core/file.hpp"
#include "linerate/trace/input/input_file.hpp"

namespace linerate::trace {

inline std::string gzipped(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

/// Digits that gzip cannot make small, so that a cut stream still holds most rows.
inline std::string noise(int n) {
  return std::to_string(static_cast<unsigned>(n) * 2654435761u % 1000003u + 1);
}

/// An input of this content, whose name ends so: gzip is unpacked from files alone.
inline InputFile input_of(const std::string& content, const std::string& name) {
  if (!content.starts_with("\x1f\x8b")) return InputFile::from_memory(content, name);
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "." + name);
  write_file_atomically(path, content);
  InputFile input = InputFile::open(path);
  std::filesystem::remove(path);  // what is open can be read
  return input;
}

}  // namespace linerate::trace
