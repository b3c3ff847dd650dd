// Cuts tensors into chunks, lays the chunks out in blocks, and holds one rank's codecs for a
// tensor. These are one for each chunk, and one more for the mean of the rank's own chunk.
// coded_tensor.hpp calls these codecs.
#include "linerate/compress/two_phase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/sign_codecs.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {
namespace {

/// The bytes of a chunk's payload, at most. A chunk may be so small that the compressor sends it
/// dense, which takes 4 bytes an element.
std::int64_t bound_of(const Compressor& compressor, const Shape& shape) {
  const std::vector<Round> rounds = compressor.rounds(shape);
  return rounds.empty() ? 4 * shape.elements : rounds[0].bytes;
}

TwoPhase::Coder coder_of(const Compressor& compressor, std::int64_t elements,
                         const TwoPhase::Making& making) {
  const Shape shape{elements, 1};
  const std::vector<Round> rounds = compressor.rounds(shape);
  if (rounds.empty()) return {making.dense_codec(shape), elements, 4 * elements, false, true};
  return {made_codec(compressor, shape), elements, rounds[0].bytes, rounds[0].is_bound, false};
}

/// Loads a chunk's codec. With this number of ranks the chunk may be so small that it travels
/// dense. Its codec then keeps nothing, whatever was saved.
void load_chunk(Codec& codec, const SavedState& saved) {
  if (!codec.state().empty()) codec.load(saved);
}

}  // namespace

Keys keys_of_chunk(const Keys& keys, std::uint64_t stream) {
  return {random_key(keys.shared, stream), random_key(keys.own, stream)};
}

bool fits_two_phase(const Compressor& compressor) {
  const std::vector<Round> rounds = compressor.of_chunks().rounds({std::int64_t{1} << 20, 1});
  return rounds.size() == 1 && rounds[0].combine == Combine::gather &&
         compressor.momentum() != Momentum::own;
}

/// Block c has chunk c of each tensor, one after the other. All blocks get the size of the largest,
/// so that one all-to-all of equal blocks carries them.
///
/// Example: three ranks, and two tensors of 10,000 and 5,000 elements. The first has chunks of
/// 4,096, 4,096 and 1,808 elements, the second of 4,096, 904 and 0. With 4 bytes an element, the
/// second tensor has offset 16,384 in blocks 0 and 1. Block 0 is the largest, with 32,768 bytes.
/// Blocks 1 and 2 are padded to that.
TwoPhaseLayout two_phase_layout_of(const Compressor& compressor, const BucketLayout& bucket,
                                   int ranks) {
  const Compressor& coder = compressor.of_chunks();
  TwoPhaseLayout layout;
  layout.is_bound = bucket.is_coded() && bucket.rounds.front().is_bound;
  const std::int64_t head = layout.is_bound ? kPartSizeBytes : 0;
  std::vector<std::int64_t> ends(to_index(ranks));
  for (const BucketPart& part : bucket.parts) {
    std::vector<std::int64_t>& offset = layout.offset.emplace_back();
    if (!part.is_coded()) continue;
    const std::vector<Chunk> chunks = cut_into_chunks(part.shape.elements, ranks);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      offset.push_back(ends[c]);
      if (chunks[c].elements == 0) continue;
      ends[c] += head + pad4(bound_of(coder, {chunks[c].elements, 1}));
    }
  }
  layout.block_bytes = *std::max_element(ends.begin(), ends.end());
  return layout;
}

/// Equal chunks of whole multiples. So the last chunks of a small tensor may be empty.
std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks) {
  const std::int64_t size = ceil_div(elements, ranks * kChunkMultiple) * kChunkMultiple;
  std::vector<Chunk> chunks;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t first = std::min(r * size, elements);
    chunks.push_back({first, std::min(size, elements - first)});
  }
  return chunks;
}

const TwoPhase::Making& TwoPhase::on_host() {
  static const Making making =
      two_phase_making<HostOps>([](const Shape& shape) { return HostOps::Making{shape}; });
  return making;
}

TwoPhase::TwoPhase(const Compressor& of_tensors, std::int64_t elements, int ranks, int rank,
                   const Making& making)
    : chunks_(cut_into_chunks(elements, ranks)) {
  const Compressor& compressor = of_tensors.of_chunks();
  if (!fits_two_phase(compressor))
    throw UsageError(
        "two-phase exchange: expected a compressor of single tensors whose payloads are gathered "
        "in one round");
  for (const Chunk& chunk : chunks_)
    workers_.push_back(coder_of(compressor, chunk.elements, making));
  const std::int64_t own = chunks_[to_index(rank)].elements;
  const std::unique_ptr<const Compressor> of_means = compressor.of_means();
  owner_ = coder_of(of_means ? *of_means : compressor, own, making);
  if (const std::int64_t most = workers_[to_index(rank)].bytes; owner_.bytes > most)
    throw UsageError(fmt::format(
        "two-phase exchange: of_means() states {} bytes for {} elements, the compressor {}: "
        "what encodes means must not need more",
        owner_.bytes, own, most));
  owed_ = making.zeros(keeps_residual(compressor) ? own : 0);
}

void add_kept(Codec& codec, std::vector<KeptField*>& all) {
  for (const StateField& field : codec.state()) all.push_back(field.kept);
}

std::vector<KeptField*> TwoPhase::kept() {
  std::vector<KeptField*> all;
  for (const Coder& worker : workers_) add_kept(*worker.codec, all);
  add_kept(*owner_.codec, all);
  all.push_back(owed_.get());
  return all;
}

/// The owner's residual is one more field after those of the owner's codec.
TwoPhaseState TwoPhase::save() {
  TwoPhaseState saved;
  for (const Coder& worker : workers_) saved.workers.push_back(worker.codec->save());
  saved.server = owner_.codec->save();
  const std::span<const std::byte> owed = owed_->bytes();
  saved.server.push_back(
      {std::string(kServerResidual), Passing::own, true, {owed.begin(), owed.end()}});
  return saved;
}

void TwoPhase::load(const TwoPhaseState& saved) {
  const auto refuse = [](const std::string& why) {
    throw InputError("checkpoint", "state of a two-phase exchange: " + why);
  };
  if (saved.workers.size() != workers_.size())
    refuse(fmt::format("expected {} chunks, found {}", workers_.size(), saved.workers.size()));
  if (saved.server.empty() || saved.server.back().name != kServerResidual)
    refuse(fmt::format("expected the field \"{}\", found none", kServerResidual));
  const std::vector<std::byte>& owed = saved.server.back().bytes;
  if (const std::size_t expected = owed_->bytes().size(); owed.size() != expected)
    refuse(fmt::format("the owner's residual: expected {} bytes, found {}", expected, owed.size()));
  load_workers(saved.workers);
  load_chunk(*owner_.codec, {saved.server.begin(), saved.server.end() - 1});
  owed_->drop();
  std::copy(owed.begin(), owed.end(), owed_->bytes().begin());
}

void TwoPhase::load_workers(const std::vector<SavedState>& saved) {
  for (std::size_t c = 0; c < workers_.size(); ++c) load_chunk(*workers_[c].codec, saved[c]);
}

std::unique_ptr<Codec> made_codec(const Compressor& compressor, const Shape& shape) {
  std::unique_ptr<Codec> codec = compressor.codec(shape);
  if (!codec)
    throw UsageError(
        fmt::format("codec() of {} elements in {} rows: expected a codec, as rounds() are not "
                    "empty, found none",
                    shape.elements, shape.rows));
  return codec;
}

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
