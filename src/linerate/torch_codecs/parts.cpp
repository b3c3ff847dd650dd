#include "linerate/torch_codecs/parts.hpp"

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_magnitudes.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

constexpr std::int64_t kPartWord = compress::kPartSizeBytes;

at::Tensor words_for(const at::Tensor& bytes) {
  return at::bitwise_right_shift(bytes + (kPartWord - 1), 2);
}

/// Room for parts, one after the other.
struct PartRooms {
  PartRooms(const std::vector<std::int64_t>& words, const at::TensorOptions& whole)
      : rooms(words, 1), part_of(rooms.row_tensors(whole)), number(rooms.row_numbers(whole)) {}

  Padded rooms;
  at::Tensor part_of, number;  // i64[words]: of each its part, and its number in it
};

}  // namespace

at::Tensor write_parts(const at::Tensor& block, const std::vector<at::Tensor>& parts,
                       const at::Tensor& used) {
  const at::Tensor to = block.view(at::kInt);
  const std::int64_t none = to.numel();
  std::vector<at::Tensor> from;
  std::vector<std::int64_t> sizes;
  for (const at::Tensor& part : parts) {
    from.push_back(part.view(at::kInt));
    sizes.push_back(from.back().numel());
  }
  const PartRooms all(sizes, used.options());
  const at::Tensor words = words_for(used), ends = (words + 1).cumsum(0);
  const at::Tensor heads = ends - words - 1;
  const at::Tensor is_used = all.number < words.index_select(0, all.part_of);
  const at::Tensor at = heads.index_select(0, all.part_of) + all.number + 1;
  const at::Tensor written = at::zeros({none + 1}, to.options());  // the last word is of no part
  written.scatter_(0, heads.clamp_max(none), used.to(at::kInt));
  written.scatter_(0, at::where(is_used, at.clamp_max(none), at::full({}, none, used.options())),
                   at::cat(from));
  to.copy_(written.narrow(0, 0, none));
  return ends.select(0, ends.size(0) - 1) * kPartWord;
}

/// Where a part begins is known when those before it are. So it is looked up for every word of a
/// block where the next part would begin, if a part began there; then a step a part is enough.
ReadParts read_parts(const std::vector<at::Tensor>& blocks, const std::vector<std::int64_t>& bytes,
                     int ranks) {
  const at::Tensor rows = at::stack(blocks).view(at::kInt);
  const at::TensorOptions whole = rows.options().dtype(at::kLong);
  const std::int64_t all = rows.size(1);
  const auto parts = static_cast<std::int64_t>(bytes.size());
  const at::Tensor said = unsigned_of(rows);
  const at::Tensor next = (at::arange(1, all + 1, whole) + words_for(said)).clamp_max(all - 1);
  std::vector<at::Tensor> begins = {at::zeros({rows.size(0), 1}, whole)};
  for (std::int64_t p = 1; p < parts; ++p) begins.push_back(next.gather(1, begins.back()));
  const at::Tensor begin = at::cat(begins, 1), size = said.gather(1, begin);  // i64[blocks][parts]

  std::vector<std::int64_t> words, after;
  for (std::int64_t p = 0; p < parts; ++p) {
    LINERATE_CHECK(bytes[to_index(p)] % kPartWord == 0, "a part that is not of whole words");
    words.push_back(bytes[to_index(p)] / kPartWord);
    after.push_back(parts - 1 - p);  // words that the parts after this one have at least
  }
  const at::Tensor is_beyond = begin + words_for(size) + listed(after, whole) >= all;
  const at::Tensor wrong = at::bitwise_or(size > listed(bytes, whole), is_beyond);
  const at::Tensor used = size.masked_fill(wrong, 0);

  const PartRooms rooms(words, whole);
  const at::Tensor at = begin.index_select(1, rooms.part_of) + rooms.number + 1;
  const at::Tensor is_used = rooms.number < words_for(used).index_select(1, rooms.part_of);
  const at::Tensor read =
      rows.gather(1, at.clamp_max(all - 1)).masked_fill_(is_used.logical_not(), 0);
  ReadParts found{{}, wrong.any()};
  for (std::int64_t p = 0; p < parts; ++p) {
    TensorArrived& one = found.arrived.emplace_back(TensorArrived{{}, ranks, used.select(1, p)});
    const TensorOps::Place& place = rooms.rooms.places[to_index(p)];
    for (std::int64_t r = 0; r < rows.size(0); ++r)
      one.payloads.push_back(
          read.select(0, r).narrow(0, place.first, place.elements).view(at::kByte));
  }
  return found;
}

}  // namespace linerate::torch_codecs
