// Signs and their levels, for tensors where they lie. The signs of a bucket are one array of bits,
// in which each tensor is filled up to whole words, as in its payload. So one operator packs all
// bits, and copies move each tensor's words.
//
// Levels are sums in f64, whose order is the device's. So they may differ from the host's in the
// last bit. All ranks decode the same payloads, so their means agree nevertheless.
//
// Example: three ranks vote on two tensors of 40 and 10 elements. These have 2 words and 1, so 96
// bits. read_signs() makes u8[3][96] of the payloads. The sum over the ranks is compared with 1,
// and bits 40 to 63 and 74 to 95 must be zero on each rank.
#include <cmath>

#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/bucket_arrays.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::LevelRule;
using compress::SignFormat;

constexpr std::int64_t kWord = 32;

std::int64_t word_bytes(std::int64_t n) { return 4 * compress::ceil_div(n, kWord); }

/// Writes the words of each tensor to its payload, from byte `at` on. `negative`: bool[elements].
void put_words(const TensorOps::Sending& tensors, const Padded& bits, const at::Tensor& negative,
               const std::vector<std::int64_t>& at) {
  const at::Tensor packed = pack_codes(bits.array(negative.view(at::kByte)), 1);
  const auto words = bits.codes_of_each(packed, 1);
  at::_foreach_copy_(sections(tensors.payloads, at, words), words);
}

/// The sections of all ranks' payloads, for all tensors: u8[ranks][bytes].
at::Tensor gathered(const TensorOps::Arriving& tensors, const std::vector<std::int64_t>& at,
                    const std::vector<std::int64_t>& bytes) {
  const std::size_t ranks = tensors.arrived.front().payloads.size();
  std::vector<at::Tensor> all;
  for (std::size_t r = 0; r < ranks; ++r)
    for (std::size_t t = 0; t < tensors.arrived.size(); ++t)
      all.push_back(tensors.arrived[t].payloads[r].narrow(0, at[t], bytes[t]));
  return at::cat(all).view({static_cast<std::int64_t>(ranks), -1});
}

struct ReadSigns {
  at::Tensor bits;   // u8[ranks][bits]
  at::Tensor wrong;  // bits after the last element of a tensor; undefined: there is no room
};
ReadSigns read_signs(const TensorOps::Arriving& tensors, const Padded& bits,
                     const std::vector<std::int64_t>& at) {
  const at::Tensor words = gathered(tensors, at, mapped(bits.sizes(), word_bytes));
  ReadSigns read{unpack_codes(words.view({-1}), 8 * words.numel(), 1).view({words.size(0), -1}),
                 {}};
  std::vector<at::Tensor> behind;
  for (const TensorOps::Place& place : bits.places)
    if (const std::int64_t used = place.first + place.elements; place.elements % kWord != 0)
      behind.push_back(
          read.bits.narrow(1, used, place.first + 8 * word_bytes(place.elements) - used));
  if (!behind.empty()) read.wrong = at::cat(behind, 1).any();
  return read;
}

at::Tensor mean_of(const at::Tensor& sum, const at::Tensor& count) {
  return at::where(count > 0, sum / count.clamp_min(1), 0).to(at::kFloat);
}

/// f32[tensors][levels]: the levels of tensors that are one block each. Only norms are used,
/// because one operator takes the norms of all tensors. The sum of the positive elements is the
/// 1-norm of max(v, 0). The number of negative ones is the 1-norm of sign(min(v, 0)).
at::Tensor levels_of_tensors(const TensorOps::Values& v, LevelRule rule) {
  std::vector<at::Scalar> counts;
  for (const at::Tensor& one : v)
    counts.emplace_back(rule == LevelRule::root_mean_square
                            ? std::sqrt(static_cast<double>(one.numel()))
                            : static_cast<double>(one.numel()));
  if (rule != LevelRule::mean_of_class) {
    std::vector<at::Tensor> norms =
        at::_foreach_norm(v, rule == LevelRule::root_mean_square ? 2 : 1, at::kDouble);
    at::_foreach_div_(norms, counts);
    return at::stack(norms).to(at::kFloat).unsqueeze(1);
  }
  const TensorOps::Values below = at::_foreach_clamp_max(v, 0);
  const auto sum_of_positive = at::_foreach_norm(at::_foreach_clamp_min(v, 0), 1, at::kDouble);
  const auto sum_of_negative = at::_foreach_norm(below, 1, at::kDouble);
  const std::vector<at::Tensor> negatives =
      at::_foreach_norm(at::_foreach_sign(below), 1, at::kDouble);
  std::vector<at::Tensor> positives = at::_foreach_neg(negatives);
  at::_foreach_add_(positives, counts);
  return at::stack({mean_of(at::stack(sum_of_positive), at::stack(positives)),
                    mean_of(at::stack(sum_of_negative), at::stack(negatives)).neg()},
                   1);
}

/// One tensor in blocks, the last one filled up with zeros.
at::Tensor in_blocks(const at::Tensor& x, std::int64_t block) {
  const std::int64_t blocks = compress::ceil_div(x.numel(), block);
  return at::constant_pad_nd(x, {0, blocks * block - x.numel()}).view({blocks, block});
}

/// f32[blocks][2]: the levels of one tensor's blocks: the means of both classes. No other rule has
/// blocks.
at::Tensor levels_of_blocks(const at::Tensor& v, std::int64_t block) {
  const at::Tensor values = in_blocks(v, block);
  const at::Tensor negatives = (values < 0).sum(1).to(at::kDouble);
  const at::Tensor counts = in_blocks(at::ones_like(v), block).sum(1, false, at::kDouble);
  return at::stack({mean_of(values.clamp_min(0).sum(1, false, at::kDouble), counts - negatives),
                    mean_of(values.clamp_max(0).sum(1, false, at::kDouble), negatives)},
                   1);
}

/// The places in payloads that follow from sizes alone: levels first, then words.
struct Layout {
  std::vector<std::int64_t> begin, level_bytes, blocks;

  template <class Sizes>
  Layout(const SignFormat& format, const Sizes& places) : begin(places.size(), 0) {
    for (const TensorOps::Place& place : places) {
      level_bytes.push_back(compress::bytes_of(format, place.elements) -
                            word_bytes(place.elements));
      blocks.push_back(level_bytes.back() / 4 / compress::levels_per_block(format.rule));
    }
  }
};

/// f32[bits]: a column of levels, each level repeated for the bits of its block.
at::Tensor of_each_bit(const SignFormat& format, const Layout& layout, const Padded& bits,
                       const at::Tensor& column) {
  std::vector<std::int64_t> sizes;
  for (std::size_t t = 0; t < bits.places.size(); ++t) {
    const std::int64_t room = bits.room(t);
    if (format.block == 0) {
      sizes.push_back(room);
      continue;
    }
    for (std::int64_t b = 0; b < layout.blocks[t]; ++b)
      sizes.push_back(std::min(format.block, room - b * format.block));
  }
  return spread(column, sizes);
}

/// f32[bits]: the values that bits and levels stand for.
at::Tensor values_of(const SignFormat& format, const Layout& layout, const Padded& bits,
                     const at::Tensor& levels, const at::Tensor& negative) {
  const at::Tensor positive = of_each_bit(format, layout, bits, levels.select(1, 0));
  const at::Tensor below = format.rule == LevelRule::mean_of_class
                               ? of_each_bit(format, layout, bits, levels.select(1, 1))
                               : -positive;
  return at::where(negative, below, positive);
}

}  // namespace

TensorOps::Values TensorOps::gradients(const Sending& tensors) {
  return parts_of(tensors.values, tensors.places);
}
TensorOps::Values TensorOps::means(const Arriving& tensors) {
  return parts_of(tensors.means, tensors.places);
}
void TensorOps::set_means(const Arriving& tensors, const Values& values) {
  at::_foreach_copy_(means(tensors), values);
}

/// Two products and a sum, each rounded.
TensorOps::Values TensorOps::averaged(OfAll<KeptValues> kept, OfAll<Room>, const Values& x,
                                      double beta) {
  Values next = at::_foreach_mul(mapped(kept, &KeptValues::now), static_cast<float>(beta));
  at::_foreach_add_(next, at::_foreach_mul(x, static_cast<float>(1 - beta)));
  return next;
}
TensorOps::Values TensorOps::average(OfAll<KeptValues> kept, const Values& x, double beta) {
  Values next = averaged(kept, {}, x, beta);
  for (std::size_t i = 0; i < next.size(); ++i) kept[i]->write(next[i]);
  return next;
}

void TensorOps::keep(OfAll<KeptValues> kept, const Values& values) {
  const Values copies = at::_foreach_add(values, 0);
  for (std::size_t i = 0; i < copies.size(); ++i) kept[i]->write(copies[i]);
}

void TensorOps::send(const Sending& tensors, const compress::DenseFormat&) {
  const Values payloads = viewed(tensors.payloads, at::kFloat);
  at::_foreach_copy_(payloads, gradients(tensors));
  if (!tensors.keeps_residual()) return;
  const Values next = parts_of(tensors.next, tensors.places);
  at::_foreach_add_(payloads, parts_of(tensors.residual, tensors.places));
  at::_foreach_zero_(next);
}

void TensorOps::read_finite_means(const Arriving& tensors, std::string_view method) {
  const Values sums = sums_in(tensors, at::kFloat, method,
                              [&](std::size_t t) { return tensors.places[t].elements; });
  const Values all = means(tensors);
  at::_foreach_copy_(all, sums);
  at::_foreach_mul_(all, 1.0f / static_cast<float>(tensors.arrived.front().ranks));
  tensors.note_damage(
      at::isfinite(at::stack(at::_foreach_norm(all, INFINITY))).all().logical_not_());
}

void TensorOps::send_signs(const Sending& tensors, const Values& values) {
  put_words(tensors, Padded::of(values, kWord), at::cat(values) < 0,
            std::vector<std::int64_t>(values.size(), 0));
}

void TensorOps::vote(const Arriving& tensors, std::string_view method) {
  const Padded bits = Padded::of(tensors.places, kWord);
  check_all_gathered(tensors, method,
                     [&](std::size_t t) { return word_bytes(tensors.places[t].elements); });
  const ReadSigns read =
      read_signs(tensors, bits, std::vector<std::int64_t>(bits.places.size(), 0));
  const at::Tensor is_negative =
      read.bits.sum(0, false, at::kInt) > tensors.arrived.front().ranks / 2;
  set_means(tensors, parts_of(at::where(is_negative, -1.0, 1.0).to(at::kFloat), bits.places));
  tensors.note_damage(read.wrong);
}

void TensorOps::send_scaled_signs(const Sending& tensors, const Values& x,
                                  const SignFormat& format) {
  Values v = x, next;
  if (tensors.keeps_residual()) {
    next = parts_of(tensors.next, tensors.places);
    v = at::_foreach_add(parts_of(tensors.residual, tensors.places), x);
  }
  const Padded bits = Padded::of(v, kWord);
  const Layout layout(format, bits.places);
  at::Tensor levels;
  if (format.block == 0) {
    levels = levels_of_tensors(v, format.rule);
  } else {
    levels = at::cat(
        mapped(v, [&](const at::Tensor& one) { return levels_of_blocks(one, format.block); }));
  }
  const at::Tensor negative = at::cat(v) < 0;
  put_words(tensors, bits, negative, layout.level_bytes);
  const Values sent_levels = bytes_of(levels).split_with_sizes(layout.level_bytes);
  at::_foreach_copy_(sections(tensors.payloads, layout.begin, sent_levels), sent_levels);
  if (next.empty()) return;
  const at::Tensor sent = values_of(format, layout, bits, levels, bits.array(negative));
  at::_foreach_sub_(v, parts_of(sent, bits.places));
  at::_foreach_copy_(next, v);
}

void TensorOps::receive(const Arriving& tensors, const SignFormat& format) {
  const Padded bits = Padded::of(tensors.places, kWord);
  const Layout layout(format, bits.places);
  check_all_gathered(tensors, format.method, [&](std::size_t t) {
    return layout.level_bytes[t] + word_bytes(bits.places[t].elements);
  });
  const ReadSigns read = read_signs(tensors, bits, layout.level_bytes);
  const at::Tensor levels = gathered(tensors, layout.begin, layout.level_bytes).view(at::kFloat);
  const at::Tensor of_rank =
      levels.view({levels.size(0), -1, compress::levels_per_block(format.rule)});
  set_average(tensors, bits, [&](const Values&, std::size_t p) {
    const auto rank = static_cast<std::int64_t>(p);
    return values_of(format, layout, bits, of_rank.select(0, rank),
                     read.bits.select(0, rank).view(at::kBool));
  });
  at::Tensor positive = of_rank.select(2, 0);
  at::Tensor is_sane = at::bitwise_and(positive >= 0, positive < INFINITY);
  if (format.rule == LevelRule::mean_of_class) {
    const at::Tensor below = of_rank.select(2, 1);
    is_sane.bitwise_and_(below <= 0).bitwise_and_(below > -INFINITY);
  }
  tensors.note_damage(is_sane.all().logical_not_());
  tensors.note_damage(read.wrong);
}

}  // namespace linerate::torch_codecs
