// A rank's compression state as bytes, for a checkpoint. Numbers are 8 bytes each, in the machine's
// own order. A text or an array is its bytes' number and then the bytes.
//
//      "linerate compression 3\n", step, number of tensors, then of each tensor:
//        name, elements, residual (f32), method's text, fields of its codec,
//        number of chunks, fields of each chunk's codec, fields of the owner
//      fields: their number, then of each field: name, Passing, 0 or 1 for an array, bytes
//
// A file may be cut off or damaged. So each length is compared with the bytes that are left before
// memory is taken. The number in the first line changes whenever the format does.
#include "linerate/compress/compression_state.hpp"

#include <cstring>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kFamily = "linerate compression ";
constexpr std::string_view kMagic = "linerate compression 3\n";

void put(std::string& out, std::int64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void put(std::string& out, const void* data, std::size_t bytes) {
  put(out, static_cast<std::int64_t>(bytes));
  if (bytes > 0) out.append(static_cast<const char*>(data), bytes);
}

/// Reads the format from front to back. Throws InputError that names the file for bytes that are
/// missing.
class Reader {
 public:
  Reader(std::string_view bytes, const std::string& place) : left_(bytes), place_(place) {}

  const std::string& place() const { return place_; }
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
  std::string_view text() { return take(to_index(number())); }
  template <typename T>
  std::vector<T> array() {
    const std::string_view bytes = text();
    if (bytes.size() % sizeof(T) != 0)
      throw InputError(place_, "the state of the compressors holds part of a number");
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  /// A number of things that take at least one byte each. So a damaged count is refused before a
  /// loop over it starts.
  std::int64_t count() {
    const std::int64_t n = number();
    if (n < 0 || static_cast<std::uint64_t>(n) > left_.size())
      throw InputError(place_, "the state of the compressors is cut off or damaged");
    return n;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
  const std::string& place_;
};

void put(std::string& out, std::string_view text) { put(out, text.data(), text.size()); }

void put(std::string& out, const SavedState& state) {
  put(out, static_cast<std::int64_t>(state.size()));
  for (const SavedField& field : state) {
    put(out, field.name);
    put(out, static_cast<std::int64_t>(field.passing));
    put(out, static_cast<std::int64_t>(field.is_array));
    put(out, field.bytes.data(), field.bytes.size());
  }
}

SavedState read_state(Reader& in) {
  SavedState state;
  for (std::int64_t left = in.count(); left > 0; --left) {
    SavedField& field = state.emplace_back();
    field.name = in.text();
    const std::int64_t passing = in.number(), is_array = in.number();
    field.bytes = in.array<std::byte>();
    if (passing < 0 || passing > static_cast<std::int64_t>(Passing::owed) || is_array < 0 ||
        is_array > 1 || (is_array == 1 && field.bytes.size() % sizeof(float) != 0))
      throw InputError(in.place(), "the state of the compressors: field \"" + field.name +
                                       "\" is of no kind that this version knows");
    field.passing = static_cast<Passing>(passing);
    field.is_array = is_array == 1;
  }
  return state;
}

}  // namespace

std::string to_bytes(const CompressionState& state) {
  std::string out(kMagic);
  put(out, state.step);
  put(out, static_cast<std::int64_t>(state.tensors.size()));
  for (const auto& [name, tensor] : state.tensors) {
    put(out, name);
    put(out, tensor.elements);
    put(out, tensor.residual.data(), tensor.residual.size() * sizeof(float));
    put(out, tensor.method);
    put(out, tensor.codec);
    put(out, static_cast<std::int64_t>(tensor.two_phase.workers.size()));
    for (const SavedState& worker : tensor.two_phase.workers) put(out, worker);
    put(out, tensor.two_phase.server);
  }
  return out;
}

CompressionState compression_state_from(std::string_view bytes, const std::string& place) {
  Reader in(bytes, place);
  if (bytes.size() < kMagic.size() || in.take(kMagic.size()) != kMagic)
    throw InputError(place,
                     bytes.starts_with(kFamily)
                         ? "expected the state of compressors of version 3, found that of another "
                           "linerate: go on with the version that wrote it, or without its state"
                         : "expected the state of compressors, found something else");
  CompressionState state;
  state.step = in.number();
  for (std::int64_t left = in.count(); left > 0; --left) {
    const std::string name(in.text());
    CompressedTensorState& tensor = state.tensors[name];
    tensor.elements = in.number();
    tensor.residual = in.array<float>();
    tensor.method = in.text();
    tensor.codec = read_state(in);
    for (std::int64_t workers = in.count(); workers > 0; --workers)
      tensor.two_phase.workers.push_back(read_state(in));
    tensor.two_phase.server = read_state(in);
  }
  if (!in.at_end()) throw InputError(place, "bytes after the state of the compressors");
  return state;
}

}  // namespace linerate::compress
