#include "linerate/torch_codecs/parts.hpp"

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::torch_codecs {
namespace {

std::int64_t words_for(std::int64_t bytes) {
  return compress::ceil_div(bytes, compress::kPartSizeBytes);
}
at::Tensor words_for(const at::Tensor& bytes) {
  return at::bitwise_right_shift(bytes + (compress::kPartSizeBytes - 1), 2);
}
at::Tensor places(std::int64_t n, const at::Tensor& like) {
  return at::arange(n, like.options().dtype(at::kLong));
}

}  // namespace

PartsWriter::PartsWriter(const at::Tensor& block)
    : block_(block.view(at::kInt)),
      words_(at::zeros({block_.numel() + 1}, block_.options())),
      at_(at::zeros({}, block_.options().dtype(at::kLong))) {}

void PartsWriter::put(const TensorPayload& part) {
  const std::int64_t bytes = part.bytes.numel(), most = words_for(bytes), none = block_.numel();
  const at::Tensor used = part.used.defined() ? part.used : at::full_like(at_, bytes);
  const at::Tensor words =
      at::constant_pad_nd(part.bytes, {0, most * compress::kPartSizeBytes - bytes}).view(at::kInt);
  words_.scatter_(0, at_.clamp_max(none).view({1}), used.to(at::kInt).view({1}));
  const at::Tensor count = words_for(used), j = places(most, words);
  words_.scatter_(0, at::where(j < count, at_ + 1 + j, none).clamp_max(none), words);
  at_ = at_ + 1 + count;
}

at::Tensor PartsWriter::finish() {
  block_.copy_(words_.narrow(0, 0, block_.numel()));
  return at_ * compress::kPartSizeBytes;
}

PartsReader::PartsReader(const std::vector<at::Tensor>& blocks)
    : rows_(at::stack(blocks).view(at::kInt)),
      at_(at::zeros({rows_.size(0)}, rows_.options().dtype(at::kLong))),
      damaged_(at::zeros({}, rows_.options().dtype(at::kBool))) {}

TensorArrived PartsReader::next(std::int64_t bytes, int ranks) {
  const std::int64_t all = rows_.size(1), most = words_for(bytes);
  const at::Tensor head = rows_.gather(1, at_.clamp_max(all - 1).unsqueeze(1)).squeeze(1);
  const at::Tensor said = at::bitwise_and(head.to(at::kLong), std::int64_t{0xffffffff});
  const at::Tensor wrong = at::bitwise_or(said > bytes, at_ + 1 + words_for(said) > all);
  damaged_ = at::bitwise_or(damaged_, wrong.any());
  const at::Tensor size = at::where(wrong, 0, said), count = words_for(size);
  const at::Tensor j = places(most, rows_);
  const at::Tensor words = rows_.gather(1, (at_.unsqueeze(1) + 1 + j).clamp_max(all - 1));
  const at::Tensor parts = at::where(j < count.unsqueeze(1), words, 0).view(at::kByte);
  at_ = at_ + 1 + count;
  TensorArrived arrived{{}, ranks, size};
  for (std::int64_t r = 0; r < rows_.size(0); ++r)
    arrived.payloads.push_back(parts.select(0, r).narrow(0, 0, bytes));
  return arrived;
}

}  // namespace linerate::torch_codecs
