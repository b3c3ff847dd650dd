#include "linerate/compress/dense_below.hpp"

#include <utility>

namespace linerate::compress {
namespace {

/// rounds() of a small tensor is empty. Chunks of the two-phase exchange are coded by the inner
/// compressor, however small they are: the option is about tensors.
class DenseBelow : public Compressor {
 public:
  DenseBelow(std::unique_ptr<const Compressor> inner, std::int64_t elements)
      : inner_(std::move(inner)), elements_(elements) {}

  Phases phases() const override { return inner_->phases(); }
  std::vector<Round> rounds(const Shape& shape) const override {
    return is_dense(shape) ? std::vector<Round>() : inner_->rounds(shape);
  }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    return is_dense(shape) ? std::vector<Round>() : inner_->rounds(shape, phase);
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override { return inner_->codec(shape); }
  Residual residual() const override { return inner_->residual(); }
  Momentum momentum() const override { return inner_->momentum(); }
  std::unique_ptr<Codec> of_dense(const Shape& shape) const override {
    return inner_->of_dense(shape);
  }
  bool is_two_phase() const override { return inner_->is_two_phase(); }
  std::unique_ptr<const Compressor> of_means() const override { return inner_->of_means(); }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return inner_->remembered_bytes(shape);
  }
  double products(const Shape& shape) const override {
    return is_dense(shape) ? 0 : inner_->products(shape);
  }
  bool is_unbiased() const override { return inner_->is_unbiased(); }
  std::int64_t dense_below() const override { return inner_->dense_below(); }
  const Compressor& of_chunks() const override { return *inner_; }

 private:
  bool is_dense(const Shape& shape) const { return shape.elements < elements_; }

  std::unique_ptr<const Compressor> inner_;
  std::int64_t elements_;
};

}  // namespace

std::unique_ptr<const Compressor> with_dense_below(std::unique_ptr<const Compressor> compressor,
                                                   doc::OptionReader& options) {
  const std::int64_t elements = options.integer(kDenseBelow, 0);
  if (elements < 0) options.refuse(kDenseBelow, "0 or a number of elements");
  if (!compressor || elements == 0) return compressor;
  return std::make_unique<DenseBelow>(std::move(compressor), elements);
}

doc::Component without_dense_below(doc::Component component) {
  std::erase_if(component.options, [](const auto& option) { return option.first == kDenseBelow; });
  return component;
}

}  // namespace linerate::compress
