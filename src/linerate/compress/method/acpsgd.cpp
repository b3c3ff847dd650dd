// acpsgd: PowerSGD with one sum a step, of one factor and the other in turn. Zhang et al. 2023,
// "Evaluation and optimization of gradient compression for distributed deep learning" (ICDCS, arXiv
// 2306.08881).
//   M = G + E, [rows][columns]
//   even steps: Q <- orthonormal Q; P = M Q    [rank][rows] f32, summed;    E = M - P_own Q^T
//   odd steps:  P <- orthonormal P; Q = M^T P  [rank][columns] f32, summed; E = M - P Q_own^T
//   mean = P Q^T / ranks
// One step computes P of a fixed Q, and the next one Q of that P. Over two steps this is the
// subspace iteration of powersgd, at half its traffic a step.
//
// The payload's size alternates by the step's number alone, so it is the same on all ranks. The
// first `warmup` steps are dense, because factors of the first gradients are the worst.
#include <algorithm>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

class AcpSgd : public BuiltIn {
 public:
  AcpSgd(std::int64_t rank, std::int64_t warm_up) : rank_(rank), warm_up_(warm_up) {}
  Phases phases() const override { return {dense_warm_up(warm_up_), {{"left", 1}, {"right", 1}}}; }
  /// The size is a bound, although the payload is a sum. It is one of two sizes, and in each step
  /// all ranks have the same.
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
  CodecChoice choice(const Shape& shape) const override {
    return CodecWith<AcpSgdCodec, std::int64_t, int>{{rank_of(rank_, shape), left()}};
  }
  Residual residual() const override { return Residual::needed; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return 4 * rank_of(rank_, shape) * (shape.rows + shape.columns());
  }
  /// The products for one factor and for the mean.
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
