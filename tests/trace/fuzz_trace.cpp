// libFuzzer target over every importer: tools/fuzz runs it.
#include <cstdint>

#include "trace/feed_importer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  linerate::trace::feed_importer(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
