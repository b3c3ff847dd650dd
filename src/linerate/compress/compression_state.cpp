#include "linerate/compress/compression_state.hpp"

#include <cstring>

#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kMagic = "linerate compression 2\n";

void put(std::string& out, std::int64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void put(std::string& out, const void* data, std::size_t bytes) {
  put(out, static_cast<std::int64_t>(bytes));
  if (bytes > 0) out.append(static_cast<const char*>(data), bytes);
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& place) : left_(bytes), place_(place) {}

  std::string_view take(std::size_t bytes) {
    if (bytes > left_.size())
      throw InputError(place_, "the state of the compressors is cut off or damaged");
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  std::int64_t number() {
    std::int64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  /// Its length, then as many bytes.
  std::string_view text() { return take(static_cast<std::size_t>(number())); }
  template <typename T>
  std::vector<T> array() {
    const std::string_view bytes = text();
    if (bytes.size() % sizeof(T) != 0)
      throw InputError(place_, "the state of the compressors holds part of a number");
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
  const std::string& place_;
};

}  // namespace

std::string to_bytes(const CompressionState& state) {
  std::string out(kMagic);
  put(out, state.step);
  put(out, static_cast<std::int64_t>(state.tensors.size()));
  for (const auto& [name, tensor] : state.tensors) {
    put(out, name.data(), name.size());
    put(out, tensor.residual.data(), tensor.residual.size() * sizeof(float));
    put(out, tensor.method.data(), tensor.method.size());
    put(out, tensor.codec.data(), tensor.codec.size());
  }
  return out;
}

CompressionState compression_state_from(std::string_view bytes, const std::string& place) {
  Reader in(bytes, place);
  if (bytes.size() < kMagic.size() || in.take(kMagic.size()) != kMagic)
    throw InputError(place, "expected the state of compressors, found something else");
  CompressionState state;
  state.step = in.number();
  for (std::int64_t left = in.number(); left > 0; --left) {
    const std::string name(in.text());
    CompressedTensorState& tensor = state.tensors[name];
    tensor.residual = in.array<float>();
    tensor.method = in.text();
    tensor.codec = in.array<std::byte>();
  }
  if (!in.at_end()) throw InputError(place, "bytes after the state of the compressors");
  return state;
}

CompressionState state_for(int rank, int ranks, std::span<const CompressionState> parts) {
  if (parts.empty()) return {};
  if (static_cast<std::size_t>(ranks) == parts.size()) return parts[static_cast<std::size_t>(rank)];
  CompressionState mean = parts.front();
  for (auto& [name, tensor] : mean.tensors)
    for (std::size_t i = 0; i < tensor.residual.size(); ++i) {
      double sum = 0;
      for (const CompressionState& part : parts) {
        const auto at = part.tensors.find(name);
        if (at != part.tensors.end() && i < at->second.residual.size())
          sum += at->second.residual[i];
      }
      tensor.residual[i] = static_cast<float>(sum / static_cast<double>(parts.size()));
    }
  return mean;
}

}  // namespace linerate::compress
