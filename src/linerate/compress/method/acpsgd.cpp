// acpsgd: PowerSGD with one sum a step, of one factor and the other in turn. Zhang et al. 2023,
// "Evaluation and optimization of gradient compression for distributed deep learning" (ICDCS, arXiv
// 2306.08881).
//   M = G + E, [rows][columns]
//   even steps: Q <- orthonormal Q; P = M Q    [rank][rows] f32, summed;    E = M - P_own Q^T
//   odd steps:  P <- orthonormal P; Q = M^T P  [rank][columns] f32, summed; E = M - P Q_own^T
//   mean = P Q^T / ranks
// The payload's size alternates: of the step's number alone, so it is the same on all ranks.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/kernel/low_rank.hpp"
#include "linerate/compress/kernel/select.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/state.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kName = "acpsgd";

class AcpSgdCodec : public Codec {
 public:
  AcpSgdCodec(const Shape& shape, std::int64_t rank)
      : shape_(shape),
        rank_(static_cast<std::size_t>(rank)),
        rows_(static_cast<std::size_t>(shape.rows)),
        columns_(static_cast<std::size_t>(shape.columns())),
        p_(rank_ * rows_),
        q_(rank_ * columns_) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    const KeepDenormals keep;
    sends_left_ = steps_ % 2 == 0;
    draw_first_factor(input.keys.shared);
    std::vector<float>& fixed = sends_left_ ? q_ : p_;
    std::vector<float>& sent = sends_left_ ? p_ : q_;
    orthonormalise_fresh(fixed, rank_, input.keys.shared);
    // What travels is scaled down by a power of two, the other factor up: exactly undone in every
    // product.
    const float scale = headroom(input.ranks, sends_left_ ? columns_ : rows_);
    sends_left_ ? make_left(input, scale) : make_right(input, scale);
    std::memcpy(payload.data(), sent.data(), 4 * sent.size());
    return 4 * sent.size();
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    const KeepDenormals keep;
    std::vector<float>& sent = sends_left_ ? p_ : q_;
    check_sizes(arrived, 1, 4 * sent.size(), kName);
    std::memcpy(sent.data(), arrived.payloads[0].data(), 4 * sent.size());
    const float share = 1.0f / static_cast<float>(arrived.ranks);
    for (float& x : sent) x *= share;
    write_product(p_, q_, rows_, columns_, mean.data());
    ++steps_;
  }

  std::vector<std::byte> save() const override {
    StateWriter state(kName, shape_);
    state.put(static_cast<std::int64_t>(rank_));
    state.put(steps_);
    state.put(std::span<const float>(p_));
    state.put(std::span<const float>(q_));
    return state.take();
  }
  void load(std::span<const std::byte> saved) override {
    StateReader state(saved, kName, shape_);
    const auto rank = static_cast<std::int64_t>(rank_);
    state.get_within<std::int64_t>(rank, rank);
    const auto steps = state.get<std::uint64_t>();
    std::vector<float> p(p_.size()), q(q_.size());
    state.get(std::span<float>(p));
    state.get(std::span<float>(q));
    state.finish();
    steps_ = steps;
    p_ = std::move(p);
    q_ = std::move(q);
  }

 private:
  void draw_first_factor(std::uint64_t key) {
    if (steps_ > 0) return;
    for (std::size_t j = 0; j < rank_; ++j)
      fill_random(key, j, std::span(q_).subspan(j * columns_, columns_));
  }

  static void multiply(std::vector<float>& factor, float by) {
    for (float& x : factor) x *= by;
  }

  /// P = M Q. A row of P needs its own row of M alone: residual added, product and what is left of
  /// the row, a strip at a time in the cache.
  void make_left(const Input& input, float scale) {
    multiply(q_, scale);
    const RightProduct product(q_, columns_);  // keeps a copy
    multiply(q_, 1 / (scale * scale));
    const std::size_t strip = std::max<std::size_t>(8, 2 * kChunk / columns_);
    for (std::size_t i = 0; i < rows_; i += strip) {
      const std::size_t count = std::min(strip, rows_ - i), first = i * columns_;
      add_residual(input, first, count * columns_);
      product({corrected(input).data() + first, count, columns_}, p_.data() + i, rows_);
      if (!input.residual.empty())
        subtract_product(p_.data() + i, rows_, q_, count, columns_, &input.residual[first]);
    }
  }

  /// Q = M^T P, of all rows.
  void make_right(const Input& input, float scale) {
    multiply(p_, scale);
    add_residual(input);
    left_product({corrected(input).data(), rows_, columns_}, p_, q_);
    multiply(p_, 1 / (scale * scale));
    if (!input.residual.empty())
      subtract_product(p_.data(), rows_, q_, rows_, columns_, input.residual.data());
  }

  Shape shape_;
  std::size_t rank_, rows_, columns_;
  std::uint64_t steps_ = 0;   // decoded
  std::vector<float> p_, q_;  // [rank][rows], [rank][columns]; the same on all ranks between steps
  bool sends_left_ = true;    // in the step at hand
};

class AcpSgd : public Compressor {
 public:
  explicit AcpSgd(std::int64_t rank) : rank_(rank) {}
  /// A bound, and yet a sum: the size is one of two, the same on all ranks of a step.
  std::vector<Round> rounds(const Shape& shape) const override {
    if (!is_worth_factors(rank_, shape)) return {};
    const std::int64_t longer = std::max(shape.rows, shape.columns());
    const bool alternates = shape.rows != shape.columns();
    return {{Combine::sum, DType::f32, 4 * rank_of(rank_, shape) * longer, alternates}};
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<AcpSgdCodec>(shape, rank_of(rank_, shape));
  }
  Residual residual() const override { return Residual::needed; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return 4 * rank_of(rank_, shape) * (shape.rows + shape.columns());
  }

 private:
  std::int64_t rank_;
};

std::unique_ptr<const Compressor> make(doc::OptionReader& options) {
  return std::make_unique<AcpSgd>(read_rank(options));
}

}  // namespace

CompressorLine compressor_acpsgd() {
  return {"acpsgd", make,
          "A matrix as a product of two thin ones, one of them a step in turn: acpsgd(rank=4).",
          "Zhang et al. 2023 (arXiv 2306.08881)"};
}

}  // namespace linerate::compress
