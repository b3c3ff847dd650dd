// acpsgd: PowerSGD with one sum a step, of one factor and the other in turn. Zhang et al. 2023,
// "Evaluation and optimization of gradient compression for distributed deep learning" (ICDCS, arXiv
// 2306.08881).
//   M = G + E, [rows][columns]
//   even steps: Q <- orthonormal Q; P = M Q    [rank][rows] f32, summed;    E = M - P_own Q^T
//   odd steps:  P <- orthonormal P; Q = M^T P  [rank][columns] f32, summed; E = M - P Q_own^T
//   mean = P Q^T / ranks
// The payload's size alternates by the step's number alone, so it is the same on all ranks. The
// first `warmup` steps are dense: factors of the first gradients are the worst.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/low_rank.hpp"
#include "linerate/compress/kernel/select.hpp"
#include "linerate/compress/method/warm_up.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kAcpsgd = "acpsgd";

class AcpSgdCodec : public Codec {
 public:
  /// `left`: the phase that sends P; the next one sends Q.
  AcpSgdCodec(const Shape& shape, std::int64_t rank, int left)
      : left_(left),
        rank_(to_index(rank)),
        rows_(to_index(shape.rows)),
        columns_(to_index(shape.columns())),
        p_(std::vector<float>(rank_ * rows_)),
        q_(std::vector<float>(rank_ * columns_)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    sends_left_ = input.phase < 0 ? steps_.now() % 2 == 0 : input.phase == left_;
    std::vector<float>& fixed = (sends_left_ ? q_ : p_).changed();
    std::vector<float>& sent = (sends_left_ ? p_ : q_).next();
    orthonormalise_fresh(fixed, rank_, input.keys.shared);  // drawn if it is still all zeros
    // What travels is scaled down by a power of two, the other factor up: exactly undone in every
    // product.
    const float scale = headroom(input.ranks, sends_left_ ? columns_ : rows_);
    sends_left_ ? make_left(input, scale) : make_right(input, scale);
    std::memcpy(payload.data(), sent.data(), 4 * sent.size());
    return 4 * sent.size();
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    read_mean(arrived, (sends_left_ ? p_ : q_).next(), kAcpsgd);
    write_product(p_.next(), q_.next(), rows_, columns_, mean.data());
    steps_.next() = steps_.now() + 1;
  }

  std::vector<StateField> state() override {
    return {{"p", Passing::same, p_}, {"q", Passing::same, q_}, {"steps", Passing::same, steps_}};
  }

 private:
  static void multiply(std::vector<float>& factor, float by) {
    for (float& x : factor) x *= by;
  }

  /// P = M Q, and what is left of a strip of M while it is in the cache.
  void make_left(const Input& input, float scale) {
    std::vector<float>&p = p_.next(), &q = q_.next();
    std::vector<float> scaled = q;
    multiply(scaled, scale);
    multiply(q, 1 / scale);
    add_residual_and_multiply(input, scaled, columns_, p,
                              [&](std::size_t first, std::size_t count) {
                                if (!input.residual.empty())
                                  subtract_product(p.data() + first, rows_, q, count, columns_,
                                                   &input.residual[first * columns_]);
                              });
  }

  /// Q = M^T P.
  void make_right(const Input& input, float scale) {
    std::vector<float>&p = p_.next(), &q = q_.next();
    multiply(p, scale);
    left_product({corrected(input).data(), rows_, columns_}, p, q,
                 [&](std::size_t first, std::size_t count) { add_residual(input, first, count); });
    multiply(p, 1 / (scale * scale));
    if (!input.residual.empty())
      subtract_product(p.data(), rows_, q, rows_, columns_, input.residual.data());
  }

  int left_;
  std::size_t rank_, rows_, columns_;
  Kept<std::uint64_t> steps_;       // decoded
  Kept<std::vector<float>> p_, q_;  // [rank][rows], [rank][columns]
  bool sends_left_ = true;          // in the step at hand
};

class AcpSgd : public Compressor {
 public:
  AcpSgd(std::int64_t rank, std::int64_t warm_up) : rank_(rank), warm_up_(warm_up) {}
  Phases phases() const override { return {dense_warm_up(warm_up_), {{"left", 1}, {"right", 1}}}; }
  /// A bound, and yet a sum: the size is one of two, the same on all ranks of a step.
  std::vector<Round> rounds(const Shape& shape) const override {
    if (!is_worth_factors(rank_, shape)) return {};
    const std::int64_t longer = std::max(shape.rows, shape.columns());
    const bool alternates = shape.rows != shape.columns();
    return {{Combine::sum, DType::f32, 4 * rank_of(rank_, shape) * longer, alternates}};
  }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    if (phase < left() || !is_worth_factors(rank_, shape)) return {};
    const std::int64_t length = phase == left() ? shape.rows : shape.columns();
    return {{Combine::sum, DType::f32, 4 * rank_of(rank_, shape) * length}};
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<AcpSgdCodec>(shape, rank_of(rank_, shape), left());
  }
  Residual residual() const override { return Residual::needed; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return 4 * rank_of(rank_, shape) * (shape.rows + shape.columns());
  }
  /// One factor and the mean.
  double products(const Shape& shape) const override {
    return flops_of_factors(rank_, shape, 2, std::max(shape.rows, shape.columns()));
  }

 private:
  int left() const { return warm_up_ > 0 ? 1 : 0; }

  std::int64_t rank_, warm_up_;
};

std::unique_ptr<const Compressor> make_acpsgd(doc::OptionReader& options) {
  const std::int64_t rank = read_rank(options);
  return std::make_unique<AcpSgd>(rank, read_warm_up(options));
}

}  // namespace

CompressorLine compressor_acpsgd() {
  return {"acpsgd", make_acpsgd,
          "A matrix as a product of two thin ones, one of them a step in turn: acpsgd(rank=4, "
          "warmup=0).",
          "Zhang et al. 2023 (arXiv 2306.08881)"};
}

}  // namespace linerate::compress
