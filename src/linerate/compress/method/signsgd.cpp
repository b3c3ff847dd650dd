// signsgd: Bernstein et al. 2019 (arXiv 1810.05291), majority vote: a bit an element, and the mean
// is the sign that most ranks sent. Sign of 0 and a tie of the vote are +1 on every wire.
// With momentum=b (Signum, the same paper) each rank votes on m <- b m + (1 - b) g.
//
// Example: three ranks have the gradients -.1, -.2 and 5 of an element. Two of three are negative,
// so the mean is -1, whatever their sizes.
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// dense_below: a dense tensor would move by its gradient, where others move by +1 or -1.
std::unique_ptr<const Compressor> make_signsgd(doc::OptionReader& options) {
  const double momentum = read_momentum(options, "momentum", 0);
  BuiltInMethod method{.rounds = one_round([](std::int64_t n) {
                         return gathered(static_cast<std::int64_t>(sign_bytes(to_index(n))));
                       }),
                       .choice = CodecWith<SignSgdCodec, double>{{momentum}},
                       .residual = Residual::none,
                       .dense_below = 0};
  if (momentum > 0) {
    method.momentum = Momentum::own;
    method.of_dense = CodecWith<DenseMomentumCodec, DenseMomentum>{
        {{static_cast<float>(momentum), static_cast<float>(1 - momentum)}}};
    method.remembered_bytes = [](const Shape& shape) { return 4 * shape.elements; };
  }
  return built_in(std::move(method));
}

}  // namespace

CompressorLine compressor_signsgd() {
  return {"signsgd", make_signsgd,
          "A bit an element; the sign that most ranks sent, as +1 or -1: signsgd(momentum=0).",
          "Bernstein et al. 2019 (arXiv 1810.05291)"};
}

}  // namespace linerate::compress
