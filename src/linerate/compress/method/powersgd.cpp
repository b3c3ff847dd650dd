// powersgd: Vogels et al. 2019 (NeurIPS, arXiv 1905.13727), one step of subspace iteration per
// training step, with the local residual in place of the paper code's average.
//   M = G + E, [rows][columns]; Q[rank][columns], warm-started
//   round 0: P = M Q        [rank][rows] f32, summed by ranks;  P^ = its orthonormal vectors
//   round 1: Q = M^T P^     [rank][columns] f32, summed by ranks; E = M - P^ Q_own^T
//   mean = P^ (Q / ranks)^T
// The first `warmup` steps are dense: factors of the first gradients are the worst.
// The mean depends on what P spans alone. So Q's vectors are scaled to length 1 first: a small
// direction then is not lost next to a large one, and no product overflows that need not.
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

constexpr std::string_view kPowersgd = "powersgd";

class PowerSgdCodec : public Codec {
 public:
  PowerSgdCodec(const Shape& shape, std::int64_t rank)
      : rank_(to_index(rank)),
        rows_(to_index(shape.rows)),
        columns_(to_index(shape.columns())),
        p_(rank_ * rows_),
        q_(std::vector<float>(rank_ * columns_)) {}

  std::size_t encode(int round, const Input& input, std::span<std::byte> payload) override {
    return round == 0 ? encode_left(input, payload) : encode_right(input, payload);
  }

  void decode(int round, const Arrived& arrived, std::span<float> mean) override {
    if (round == 0)
      decode_left(arrived);
    else
      decode_right(arrived, mean);
  }

  std::vector<StateField> state() override {
    return {{"q", Passing::same, q_}, {"is_warm", Passing::same, is_warm_}};
  }
  bool is_sane() const override { return is_warm_.now() <= 1; }

 private:
  std::size_t encode_left(const Input& input, std::span<std::byte> payload) {
    key_ = input.keys.shared;
    start_from_unit_vectors(headroom(input.ranks, columns_));
    add_residual_and_multiply(input, q_.next(), columns_, p_, [](std::size_t, std::size_t) {});
    std::memcpy(payload.data(), p_.data(), 4 * p_.size());
    return 4 * p_.size();
  }

  /// Q's vectors, scaled to length `scale`; drawn if there are none yet or one is of no use.
  void start_from_unit_vectors(float scale) {
    std::vector<float>& q = q_.changed();
    for (std::size_t j = 0; j < rank_; ++j) {
      const auto vector = std::span(q).subspan(j * columns_, columns_);
      double norm = is_warm_.now() ? norm_of(vector) : 0;
      if (!(norm > 0 && std::isfinite(norm))) {
        fill_random(key_, j, vector);
        norm = norm_of(vector);
      }
      for (float& x : vector) x = static_cast<float>(x / norm * static_cast<double>(scale));
    }
    is_warm_.next() = 1;
  }
  static double norm_of(std::span<const float> vector) {
    const std::vector<double> wide(vector.begin(), vector.end());
    return std::sqrt(dot(wide, wide));
  }

  void decode_left(const Arrived& arrived) {
    check_sum(arrived, 4 * p_.size(), kPowersgd);
    std::memcpy(p_.data(), arrived.payloads[0].data(), 4 * p_.size());
    vanished_ = orthonormalise(p_, rank_);
  }

  /// What travels is scaled down by a power of two, P^ up: exactly undone in every product.
  std::size_t encode_right(const Input& input, std::span<std::byte> payload) {
    const float scale = headroom(input.ranks, rows_);
    std::vector<float>& q = q_.next();
    for (float& x : p_) x *= scale;
    left_product({corrected(input).data(), rows_, columns_}, p_, q);
    for (float& x : p_) x /= scale * scale;
    std::memcpy(payload.data(), q.data(), 4 * q.size());
    if (!input.residual.empty())
      subtract_product(p_.data(), rows_, q, rows_, columns_, input.residual.data());
    return 4 * q.size();
  }

  void decode_right(const Arrived& arrived, std::span<float> mean) {
    std::vector<float>& q = q_.next();
    read_mean(arrived, q, kPowersgd);
    write_product(p_, q, rows_, columns_, mean.data());
    // A direction that vanished would stay zero for ever: the next step tries another.
    for (const std::size_t j : vanished_)
      fill_random(key_, rank_ + j, std::span(q).subspan(j * columns_, columns_));
  }

  std::size_t rank_, rows_, columns_;
  Kept<std::uint64_t> is_warm_;  // 1: Q's vectors are a step's
  std::vector<float> p_;         // [rank][rows]
  Kept<std::vector<float>> q_;   // [rank][columns]
  // Of the step at hand.
  std::uint64_t key_ = 0;
  std::vector<std::size_t> vanished_;
};

class PowerSgd : public Compressor {
 public:
  PowerSgd(std::int64_t rank, std::int64_t warm_up) : rank_(rank), warm_up_(warm_up) {}
  Phases phases() const override { return {.warm_up = dense_warm_up(warm_up_)}; }
  std::vector<Round> rounds(const Shape& shape) const override {
    if (!is_worth_factors(rank_, shape)) return {};
    const std::int64_t rank = rank_of(rank_, shape);
    return {{Combine::sum, DType::f32, 4 * rank * shape.rows},
            {Combine::sum, DType::f32, 4 * rank * shape.columns()}};
  }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    return phase + 1 < phases().count() ? std::vector<Round>() : rounds(shape);
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<PowerSgdCodec>(shape, rank_of(rank_, shape));
  }
  Residual residual() const override { return Residual::needed; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return 4 * rank_of(rank_, shape) * shape.columns();
  }
  /// P, Q and the mean; both factors are scaled or made orthonormal.
  double products(const Shape& shape) const override {
    return flops_of_factors(rank_, shape, 3, shape.rows + shape.columns());
  }

 private:
  std::int64_t rank_, warm_up_;
};

std::unique_ptr<const Compressor> make_powersgd(doc::OptionReader& options) {
  const std::int64_t rank = read_rank(options);
  return std::make_unique<PowerSgd>(rank, read_warm_up(options));
}

}  // namespace

CompressorLine compressor_powersgd() {
  return {"powersgd", make_powersgd,
          "A matrix as a product of two thin ones, two sums a step: powersgd(rank=4, warmup=0).",
          "Vogels et al. 2019 (arXiv 1905.13727)"};
}

}  // namespace linerate::compress
