// Brings all that a parameter is owed into its residual. A change of the method, a dense step and a
// change of the number of ranks use this. A residual is the one form that each method can go on
// with.
#include <algorithm>

#include "linerate/compress/two_phase.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

bool are_zeros(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
}

/// Adds `times` the field's values to a part of the residual, and sets the field to zero. A field
/// of another size than the part has no meaning for the tensor, so it stays.
void move(SavedField& field, float times, const Chunk& part, CompressedTensorState& to) {
  const std::vector<float> values = floats_in(field.bytes);
  if (values.size() != to_index(part.elements) || are_zeros(values)) return;
  to.residual.resize(to_index(to.elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    to.residual[to_index(part.first) + i] += times * values[i];
  std::fill(field.bytes.begin(), field.bytes.end(), std::byte{0});
}

void move_owed(SavedState& codec, const Chunk& part, CompressedTensorState& to) {
  for (SavedField& field : codec)
    if (field.passing == Passing::owed) move(field, 1, part, to);
}

}  // namespace

std::vector<SavedState> cut(const SavedState& whole, const std::vector<Chunk>& chunks) {
  constexpr std::ptrdiff_t kEach = sizeof(float);
  const std::int64_t elements = chunks.back().first + chunks.back().elements;
  std::vector<SavedState> parts;
  for (const Chunk& chunk : chunks) {
    SavedState& fields = parts.emplace_back();
    for (const SavedField& field : whole) {
      auto begin = field.bytes.begin(), end = field.bytes.end();
      if (field.is_array && begin != end) {
        if (end - begin != elements * kEach)
          throw InputError("checkpoint",
                           "state of a two-phase exchange: its chunks are not those of the tensor");
        begin += chunk.first * kEach;
        end = begin + chunk.elements * kEach;
      }
      fields.push_back({field.name, field.passing, field.is_array, {begin, end}});
    }
  }
  return parts;
}

/// A worker's fields are in units of the rank's own gradient, so they are added as they are. The
/// owner's residual is in units of the mean of all ranks. So it is multiplied by the number of
/// ranks. Example: the owner among three ranks has .2 of an element's mean left. As part of its own
/// gradient that must be .6, because the mean divides the rank's share by 3.
void own_all_owed(CompressedTensorState& state, int rank) {
  move_owed(state.codec, {0, state.elements}, state);
  const std::size_t ranks = state.two_phase.workers.size();
  if (to_index(rank) < ranks) {
    const std::vector<Chunk> chunks = cut_into_chunks(state.elements, static_cast<int>(ranks));
    for (std::size_t c = 0; c < ranks; ++c) move_owed(state.two_phase.workers[c], chunks[c], state);
    for (SavedField& field : state.two_phase.server)
      if (field.name == kServerResidual)
        move(field, static_cast<float>(ranks), chunks[to_index(rank)], state);
  }
  if (are_zeros(state.residual)) state.residual.clear();
}

bool owes(const CompressionState& state, int rank) {
  return std::any_of(state.tensors.begin(), state.tensors.end(), [&](const auto& entry) {
    CompressedTensorState tensor = entry.second;
    own_all_owed(tensor, rank);
    return !tensor.residual.empty();
  });
}

// Gives a checkpoint's state to another number of ranks than saved it. The rule: the optimizer must
// get in the end what it would have got. A rank's residual reaches the optimizer divided by the
// number of ranks. So each of the new ranks gets the mean of the old residuals, and the new mean
// over ranks is the old one.
//
// Example: three ranks saved the residuals 3, 0 and 6 of an element, so 9 / 3 = 3 is owed to its
// mean. On two ranks each gets 3, and (3 + 3) / 2 = 3 is owed still. On four ranks each gets 3 as
// well.

namespace {

using Floats = std::vector<float>;

std::vector<std::byte> bytes_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

bool is_mean(Passing passing) { return passing == Passing::mean || passing == Passing::owed; }

/// The mean over ranks, summed in f64. A rank that has fewer elements counts as zeros for the rest.
Floats mean_of(const std::vector<Floats>& ranks, std::size_t size) {
  Floats mean(size);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const Floats& rank : ranks)
      if (i < rank.size()) sum += rank[i];
    mean[i] = static_cast<float>(sum / static_cast<double>(ranks.size()));
  }
  return mean;
}

/// A tensor's states, in the order of the ranks that saved. A rank that does not know the tensor
/// has an empty state, which owes nothing.
using Ranks = std::vector<const CompressedTensorState*>;

/// The state of one tensor on one of the new ranks. Fields that are a rank's own are taken from the
/// saved ranks in turn. With 3 saved ranks the new rank 4 takes those of rank 1.
class Redistribution {
 public:
  /// `any`: of a rank that knows the tensor.
  Redistribution(int rank, int ranks, Ranks saved, const CompressedTensorState& any)
      : rank_(rank),
        ranks_(ranks),
        saved_(std::move(saved)),
        own_(saved_[to_index(rank) % saved_.size()]->elements == any.elements
                 ? *saved_[to_index(rank) % saved_.size()]
                 : any) {}

  CompressedTensorState state() const {
    CompressedTensorState state{own_.elements, residual(), own_.method, codec(), {}};
    if (!own_.two_phase.workers.empty()) state.two_phase = {workers(), server()};
    return state;
  }

 private:
  Floats residual() const {
    std::vector<Floats> ranks;
    bool owes = false;
    for (const CompressedTensorState* s : saved_) {
      owes = owes || s->residual.size() == to_index(own_.elements);
      ranks.push_back(s->residual);
    }
    return owes ? mean_of(ranks, to_index(own_.elements)) : Floats();
  }

  /// The fields of the codec of a whole tensor, for this rank. A momentum is the mean over the
  /// ranks that have it. For a field that is owed, the ranks that lack it count as zeros, because
  /// they owe nothing.
  SavedState codec() const {
    SavedState fields = own_.codec;
    for (std::size_t f = 0; f < fields.size(); ++f) {
      SavedField& own = fields[f];
      if (!is_mean(own.passing)) continue;
      std::vector<Floats> ranks;
      for (const CompressedTensorState* s : saved_)
        if (f < s->codec.size() && s->codec[f].bytes.size() == own.bytes.size())
          ranks.push_back(floats_in(s->codec[f].bytes));
        else if (own.passing == Passing::owed)
          ranks.emplace_back();
      own.bytes = bytes_of(mean_of(ranks, own.bytes.size() / sizeof(float)));
    }
    return fields;
  }

  /// The fields of the new chunks' codecs. A saved rank's chunks are joined to a whole array. If
  /// the field passes as a mean, the mean over ranks is taken. Then the array is cut into the new
  /// chunks. A single number is taken from the old chunk with the same number, or from the last
  /// one.
  std::vector<SavedState> workers() const {
    SavedState whole = fields_like(own_.two_phase.workers);
    for (SavedField& field : whole)
      if (field.is_array) field.bytes = bytes_of(whole_of_workers(field));
    std::vector<SavedState> workers = cut(whole, cut_into_chunks(own_.elements, ranks_));
    for (std::size_t c = 0; c < workers.size(); ++c)
      for (SavedField& field : workers[c])
        if (const SavedField* there = field_of(own_.two_phase.workers, c, field.name);
            there && !field.is_array)
          field.bytes = there->bytes;
    return workers;
  }

  /// The fields of the owner of the new chunk. Each saved rank owned one chunk, so their arrays one
  /// after the other are the whole tensor's. They are in units of the mean, so no factor is needed.
  SavedState server() const {
    SavedState whole = own_.two_phase.server;
    for (SavedField& field : whole) {
      if (!field.is_array) continue;
      field.bytes.clear();
      for (const CompressedTensorState* s : saved_)
        for (const SavedField& part : s->two_phase.server)
          if (part.name == field.name)
            field.bytes.insert(field.bytes.end(), part.bytes.begin(), part.bytes.end());
    }
    return cut(whole, cut_into_chunks(own_.elements, ranks_))[to_index(rank_)];
  }

  Floats whole_of_workers(const SavedField& like) const {
    std::vector<Floats> ranks;
    for (const CompressedTensorState* s : saved_) {
      Floats& whole = ranks.emplace_back();
      const std::vector<Chunk> chunks =
          cut_into_chunks(own_.elements, static_cast<int>(saved_.size()));
      for (std::size_t c = 0; c < chunks.size(); ++c) {
        const SavedField* part = c < s->two_phase.workers.size()
                                     ? field_of(s->two_phase.workers, c, like.name)
                                     : nullptr;
        // A chunk that was dense owes nothing.
        const Floats values = part ? floats_in(part->bytes) : Floats(to_index(chunks[c].elements));
        whole.insert(whole.end(), values.begin(), values.end());
      }
    }
    return is_mean(like.passing) ? mean_of(ranks, ranks.front().size())
                                 : ranks[to_index(rank_) % ranks.size()];
  }

  /// The fields of the first chunk that has any. The last ones may be empty or dense.
  static SavedState fields_like(const std::vector<SavedState>& workers) {
    for (const SavedState& worker : workers)
      if (!worker.empty()) return worker;
    return {};
  }
  static const SavedField* field_of(const std::vector<SavedState>& workers, std::size_t chunk,
                                    const std::string& name) {
    const SavedState& fields = workers[std::min(chunk, workers.size() - 1)];
    const auto named = [&](const SavedField& f) { return f.name == name; };
    const auto found = std::find_if(fields.begin(), fields.end(), named);
    return found == fields.end() ? nullptr : &*found;
  }

  int rank_, ranks_;
  Ranks saved_;
  const CompressedTensorState& own_;
};

}  // namespace

CompressionState state_for(int rank, int ranks, std::span<const CompressionState> parts) {
  if (parts.empty()) return {};
  if (to_index(ranks) == parts.size()) return parts[to_index(rank)];
  CompressionState state{parts.front().step, {}};
  static const CompressedTensorState unknown;
  for (const CompressionState& any : parts)
    for (const auto& [name, tensor] : any.tensors) {
      if (state.tensors.contains(name)) continue;
      Ranks saved;
      for (const CompressionState& part : parts) {
        const auto at = part.tensors.find(name);
        saved.push_back(at == part.tensors.end() ? &unknown : &at->second);
      }
      state.tensors[name] = Redistribution(rank, ranks, std::move(saved), tensor).state();
    }
  return state;
}

}  // namespace linerate::compress
