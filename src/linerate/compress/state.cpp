#include "linerate/compress/state.hpp"

#include <fmt/format.h>

#include <string>

#include "linerate/core/error.hpp"

namespace linerate::compress {

StateWriter::StateWriter(std::string_view method, const Shape& shape) {
  put_bytes(std::as_bytes(std::span(method)));
  put(shape.elements);
  put(shape.rows);
}

StateReader::StateReader(std::span<const std::byte> saved, std::string_view method,
                         const Shape& shape)
    : left_(saved), method_(method) {
  const auto name = next(method.size());
  if (std::memcmp(name.data(), method.data(), method.size()) != 0) refuse("of another compressor");
  const auto elements = get<std::int64_t>(), rows = get<std::int64_t>();
  if (elements != shape.elements || rows != shape.rows)
    refuse(fmt::format("expected {} elements in {} rows, found {} in {}", shape.elements,
                       shape.rows, elements, rows));
}

std::span<const std::byte> StateReader::next(std::size_t bytes) {
  if (left_.size() < bytes) refuse("it ends early");
  const auto taken = left_.first(bytes);
  left_ = left_.subspan(bytes);
  return taken;
}

void StateReader::finish() const {
  if (!left_.empty()) refuse(fmt::format("{} bytes too many", left_.size()));
}

void StateReader::refuse(std::string_view why) const {
  throw InputError("checkpoint", fmt::format("state of {}: {}", method_, why));
}

}  // namespace linerate::compress
