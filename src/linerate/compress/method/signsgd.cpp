// signsgd: Bernstein et al. 2019 (arXiv 1810.05291), majority vote: a bit an element, and the mean
// is the sign that most ranks sent. Sign of 0 and a tie of the vote are +1 on every wire.
// With momentum=b (Signum, the same paper) each rank votes on m <- b m + (1 - b) g.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "linerate/compress/kernel/signs.hpp"
#include "linerate/compress/method/momentum.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kSignsgd = "signsgd";

constexpr std::size_t kBlockWords = kDecodeBlock / 32;
using BlockWords = std::array<std::uint32_t, kBlockWords>;

/// How many ranks said "negative", for a block of elements: bit p of the count of element j of word
/// w is bit j of planes[p][w]. 32 counters a word, added to with a few operations of logic.
class Tally {
 public:
  explicit Tally(std::size_t ranks) : planes_(to_index(std::bit_width(ranks))), half_(ranks / 2) {}

  void clear() {
    for (BlockWords& plane : planes_) plane.fill(0);
  }
  void add(const std::byte* words, std::size_t count) {
    BlockWords carry;
    std::memcpy(carry.data(), words, 4 * count);
    for (BlockWords& plane : planes_)
      for (std::size_t w = 0; w < count; ++w) {
        const std::uint32_t both = plane[w] & carry[w];
        plane[w] ^= carry[w];
        carry[w] = both;
      }
  }
  /// Bits of the elements that more than half of the ranks called negative, compared from the
  /// counters' highest bit down.
  void majority(std::size_t count, BlockWords& more) const {
    BlockWords equal;
    equal.fill(~0u);
    more.fill(0);
    for (std::size_t p = planes_.size(); p-- > 0;) {
      const std::uint32_t of_half = half_ >> p & 1 ? ~0u : 0u;
      for (std::size_t w = 0; w < count; ++w) {
        more[w] |= equal[w] & planes_[p][w] & ~of_half;
        equal[w] &= ~(planes_[p][w] ^ of_half);
      }
    }
  }

 private:
  std::vector<BlockWords> planes_;
  std::size_t half_;
};

class SignSgdCodec : public Codec {
 public:
  SignSgdCodec(const Shape& shape, double momentum)
      : n_(to_index(shape.elements)),
        average_(momentum),
        momentum_(std::vector<float>(momentum > 0 ? n_ : 0)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    LINERATE_CHECK(input.residual.empty(), "signsgd keeps no residual");
    std::span<const float> sent = input.gradient;
    if (!momentum_.now().empty()) {
      average_(momentum_.now(), input.gradient, momentum_.next());
      sent = momentum_.next();
    }
    pack_signs(sent, SignSum::none, payload.data());
    return sign_bytes(n_);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    const auto ranks = to_index(arrived.ranks);
    check_gathered(arrived, sign_bytes(n_), kSignsgd);
    for (std::size_t p = 0; p < ranks; ++p)
      if (!has_clean_tail(arrived.payloads[p].data(), n_))
        refuse_payload(kSignsgd, p, "bits after the last element");
    Tally tally(ranks);
    BlockWords votes;
    for (std::size_t first = 0; first < n_; first += kDecodeBlock) {
      const auto out = mean.subspan(first, std::min(kDecodeBlock, n_ - first));
      const std::size_t words = sign_bytes(out.size()) / 4;
      tally.clear();
      for (const auto& payload : arrived.payloads) tally.add(payload.data() + first / 8, words);
      tally.majority(words, votes);
      set_signs(reinterpret_cast<const std::byte*>(votes.data()), {1, -1}, out);
    }
  }

  std::vector<StateField> state() override {
    if (momentum_.now().empty()) return {};
    return {{"momentum", Passing::mean, momentum_}};
  }

 private:
  std::size_t n_;
  MovingAverage average_;
  Kept<std::vector<float>> momentum_;  // empty: signs of gradients are sent
};

/// A tensor of one element travels dense: its momentum is that of the mean.
class SignSgdDenseCodec : public Codec {
 public:
  SignSgdDenseCodec(const Shape& shape, double momentum)
      : average_(momentum), momentum_(std::vector<float>(to_index(shape.elements))) {}

  std::size_t encode(int, const Input&, std::span<std::byte>) override {
    throw InternalError("signsgd: a tensor that travels dense is not encoded");
  }
  void decode(int, const Arrived&, std::span<float> mean) override {
    average_(momentum_.now(), mean, momentum_.next());
    std::copy(momentum_.next().begin(), momentum_.next().end(), mean.begin());
  }
  std::vector<StateField> state() override { return {{"momentum", Passing::same, momentum_}}; }

 private:
  MovingAverage average_;
  Kept<std::vector<float>> momentum_;
};

class SignSgd : public Compressor {
 public:
  explicit SignSgd(double momentum) : momentum_(momentum) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    const auto bytes = sign_bytes(to_index(shape.elements));
    return one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = static_cast<std::int64_t>(bytes)});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<SignSgdCodec>(shape, momentum_);
  }
  Momentum momentum() const override {
    return momentum_ > 0 ? Momentum::own : Momentum::optimizers;
  }
  std::unique_ptr<Codec> of_dense(const Shape& shape) const override {
    if (!(momentum_ > 0)) return nullptr;
    return std::make_unique<SignSgdDenseCodec>(shape, momentum_);
  }
  Residual residual() const override { return Residual::none; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return momentum_ > 0 ? 4 * shape.elements : 0;
  }

 private:
  double momentum_;
};

}  // namespace

double read_signsgd_momentum(doc::OptionReader& options) {
  return read_momentum(options, "momentum", 0);
}

CompressorLine compressor_signsgd() {
  return {"signsgd",
          [](doc::OptionReader& options) -> std::unique_ptr<const Compressor> {
            return std::make_unique<SignSgd>(read_signsgd_momentum(options));
          },
          "A bit an element; the sign that most ranks sent, as +1 or -1: signsgd(momentum=0).",
          "Bernstein et al. 2019 (arXiv 1810.05291)"};
}

}  // namespace linerate::compress
