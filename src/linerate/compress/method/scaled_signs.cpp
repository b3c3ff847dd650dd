#include "linerate/compress/method/scaled_signs.hpp"

#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {
namespace {

class ScaledSigns : public BuiltIn {
 public:
  explicit ScaledSigns(const SignFormat& format) : format_(format) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape,
                                {.combine = Combine::gather, .bytes = bytes_of(format_, shape)});
  }
  CodecChoice choice(const Shape&) const override {
    return CodecWith<ScaledSignCodec, SignFormat>{{format_}};
  }
  Residual residual() const override { return Residual::needed; }

 private:
  SignFormat format_;
};

}  // namespace

std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format) {
  return std::make_unique<ScaledSigns>(format);
}

}  // namespace linerate::compress
