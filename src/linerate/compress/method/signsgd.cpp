// signsgd: Bernstein et al. 2019 (arXiv 1810.05291), majority vote: a bit an element, and the mean
// is the sign that most ranks sent. Sign of 0 and a tie of the vote are +1 on every wire.
// With momentum=b (Signum, the same paper) each rank votes on m <- b m + (1 - b) g.
//
// Example: three ranks have the gradients -.1, -.2 and 5 of an element. Two of three are negative,
// so the mean is -1, whatever their sizes.
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

class SignSgd : public BuiltIn {
 public:
  explicit SignSgd(double momentum) : momentum_(momentum) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    const auto bytes = sign_bytes(to_index(shape.elements));
    return one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = static_cast<std::int64_t>(bytes)});
  }
  CodecChoice choice(const Shape&) const override {
    return CodecWith<SignSgdCodec, double>{{momentum_}};
  }
  Momentum momentum() const override {
    return momentum_ > 0 ? Momentum::own : Momentum::optimizers;
  }
  std::optional<CodecChoice> dense_choice() const override {
    if (!(momentum_ > 0)) return std::nullopt;
    return CodecWith<DenseAverageCodec, double>{{momentum_}};
  }
  Residual residual() const override { return Residual::none; }
  /// A dense tensor would move by its gradient, where others move by +1 or -1.
  std::int64_t dense_below() const override { return 0; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return momentum_ > 0 ? 4 * shape.elements : 0;
  }

 private:
  double momentum_;
};

double read_signsgd_momentum(doc::OptionReader& options) {
  return read_momentum(options, "momentum", 0);
}

}  // namespace

CompressorLine compressor_signsgd() {
  return {"signsgd",
          [](doc::OptionReader& options) -> std::unique_ptr<const Compressor> {
            return std::make_unique<SignSgd>(read_signsgd_momentum(options));
          },
          "A bit an element; the sign that most ranks sent, as +1 or -1: signsgd(momentum=0).",
          "Bernstein et al. 2019 (arXiv 1810.05291)"};
}

}  // namespace linerate::compress
