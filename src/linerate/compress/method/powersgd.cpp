// powersgd: Vogels et al. 2019 (NeurIPS, arXiv 1905.13727), one step of subspace iteration per
// training step, with the local residual in place of the paper code's average.
//   M = G + E, [rows][columns]; Q[rank][columns], warm-started
//   round 0: P = M Q        [rank][rows] f32, summed by ranks;  P^ = its orthonormal vectors
//   round 1: Q = M^T P^     [rank][columns] f32, summed by ranks; E = M - P^ Q_own^T
//   mean = P^ (Q / ranks)^T
// The first `warmup` steps are dense, because factors of the first gradients are the worst.
//
// Why it works: P^ spans a space to which M moves the last step's Q. M changes slowly from step to
// step. So each step is one more iteration towards the largest singular directions.
//
// The mean depends only on the space that P spans. So Q's vectors may be scaled to length 1 first.
// Else a small direction would be lost next to a large one. With vectors of lengths 1e4 and 1e-4
// the second one of P would be 1e-8 of the whole, and count as vanished.
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// Floating point operations: the products for P, for Q and for the mean. Both factors are scaled
/// or made orthonormal.
std::unique_ptr<const Compressor> make_powersgd(doc::OptionReader& options) {
  const std::int64_t rank = read_rank(options), warm_up = read_warm_up(options);
  return built_in(
      {.rounds = [=](const Shape& shape, int phase) -> std::vector<Round> {
         const bool is_dense = warm_up > 0 && phase == 0;
         if (is_dense || !is_worth_factors(rank, shape)) return {};
         const std::int64_t vectors = rank_of(rank, shape);
         return {{Combine::sum, DType::f32, 4 * vectors * shape.rows},
                 {Combine::sum, DType::f32, 4 * vectors * shape.columns()}};
       },
       .choice = CodecWith<PowerSgdCodec, std::int64_t>{{rank}},
       .phases = {.warm_up = dense_warm_up(warm_up)},
       .remembered_bytes =
           [=](const Shape& shape) { return 4 * rank_of(rank, shape) * shape.columns(); },
       .products =
           [=](const Shape& shape) {
             return flops_of_factors(rank, shape, 3, shape.rows + shape.columns());
           }});
}

}  // namespace

CompressorLine compressor_powersgd() {
  return {"powersgd", make_powersgd,
          "A matrix as a product of two thin ones, two sums a step: powersgd(rank=4, warmup=0).",
          "Vogels et al. 2019 (arXiv 1905.13727)"};
}

}  // namespace linerate::compress
