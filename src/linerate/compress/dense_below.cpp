#include "linerate/compress/dense_below.hpp"

#include <utility>

namespace linerate::compress {
namespace {

/// rounds() of a small tensor is empty. Chunks of the two-phase exchange are coded by the inner
/// compressor, however small they are: the option is about tensors.
class DenseBelow : public OverCompressor {
 public:
  DenseBelow(std::shared_ptr<const Compressor> inner, std::int64_t elements)
      : OverCompressor(std::move(inner)), elements_(elements) {}

  std::vector<Round> rounds(const Shape& shape) const override {
    return is_dense(shape) ? std::vector<Round>() : inner()->rounds(shape);
  }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    return is_dense(shape) ? std::vector<Round>() : inner()->rounds(shape, phase);
  }
  double products(const Shape& shape) const override {
    return is_dense(shape) ? 0 : inner()->products(shape);
  }
  const Compressor& of_chunks() const override { return *inner(); }

 private:
  bool is_dense(const Shape& shape) const { return shape.elements < elements_; }

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
