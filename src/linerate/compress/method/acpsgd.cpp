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

#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// Without a phase the size is a bound, although the payload is a sum. It is one of two sizes, and
/// in each step all ranks have the same. Floating point operations are those of the products for
/// one factor and for the mean.
std::unique_ptr<const Compressor> make_acpsgd(doc::OptionReader& options) {
  const std::int64_t rank = read_rank(options), warm_up = read_warm_up(options);
  const int left = warm_up > 0 ? 1 : 0;
  return built_in(
      {.rounds = [=](const Shape& shape, int phase) -> std::vector<Round> {
         const bool is_dense = phase >= 0 && phase < left;
         if (is_dense || !is_worth_factors(rank, shape)) return {};
         const std::int64_t each = 4 * rank_of(rank, shape);
         if (phase >= 0)
           return {
               {Combine::sum, DType::f32, each * (phase == left ? shape.rows : shape.columns())}};
         return {{Combine::sum, DType::f32, each * std::max(shape.rows, shape.columns()),
                  shape.rows != shape.columns()}};
       },
       .choice = CodecWith<AcpSgdCodec, std::int64_t, int>{{rank, left}},
       .phases = {dense_warm_up(warm_up), {{"left", 1}, {"right", 1}}},
       .remembered_bytes =
           [=](const Shape& shape) {
             return 4 * rank_of(rank, shape) * (shape.rows + shape.columns());
           },
       .products =
           [=](const Shape& shape) {
             return flops_of_factors(rank, shape, 2, std::max(shape.rows, shape.columns()));
           }});
}

}  // namespace

CompressorLine compressor_acpsgd() {
  return {"acpsgd", make_acpsgd,
          "A matrix as a product of two thin ones, one of them a step in turn: acpsgd(rank=4, "
          "warmup=0).",
          "Zhang et al. 2023 (arXiv 2306.08881)"};
}

}  // namespace linerate::compress
