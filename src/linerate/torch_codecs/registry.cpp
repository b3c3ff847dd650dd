#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "linerate/compress/dense_below.hpp"
#include "linerate/compress/method/half_precision.hpp"
#include "linerate/compress/method/low_rank_codecs.hpp"
#include "linerate/compress/method/pass_codecs.hpp"
#include "linerate/compress/method/sign_codecs.hpp"
#include "linerate/compress/method/warm_up.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_codecs {
namespace {

struct Line {
  std::string_view name;
  MakeTensorCodec codec;
  MakeTensorCodec of_dense = nullptr;
};

template <DType half>
Made make_half(const Making& making, doc::OptionReader&) {
  return std::make_unique<compress::HalfCodec<TensorOps>>(making, half);
}

Made make_signsgd(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::SignSgdCodec<TensorOps>>(
      making, compress::read_signsgd_momentum(options));
}
Made make_signsgd_dense(const Making& making, doc::OptionReader& options) {
  const double momentum = compress::read_signsgd_momentum(options);
  if (!(momentum > 0)) return nullptr;
  return std::make_unique<compress::DenseAverageCodec<TensorOps>>(making, momentum);
}
Made make_efsignsgd(const Making& making, doc::OptionReader&) {
  return std::make_unique<compress::ScaledSignCodec<TensorOps>>(making,
                                                                compress::efsignsgd_format());
}
Made make_onebit(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::ScaledSignCodec<TensorOps>>(making,
                                                                compress::onebit_format(options));
}
Made make_onebit_adam(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::OneBitAdamCodec<TensorOps>>(
      making, compress::read_onebit_adam(options));
}

Made make_qsgd(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::GridCodec<TensorOps>>(making, compress::qsgd_format(options));
}
Made make_maxmin(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::GridCodec<TensorOps>>(making, compress::maxmin_format(options));
}
Made make_terngrad(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::GridCodec<TensorOps>>(making,
                                                          compress::terngrad_format(options));
}
Made make_natural(const Making& making, doc::OptionReader& options) {
  return std::make_unique<compress::PowerCodec<TensorOps>>(making,
                                                           compress::natural_format(options));
}
Made make_powersgd(const Making& making, doc::OptionReader& options) {
  const std::int64_t rank = compress::rank_of(compress::read_rank(options), making.shape);
  return std::make_unique<compress::PowerSgdCodec<TensorOps>>(making, rank);
}
Made make_acpsgd(const Making& making, doc::OptionReader& options) {
  const std::int64_t rank = compress::rank_of(compress::read_rank(options), making.shape);
  const int left = compress::read_warm_up(options) > 0 ? 1 : 0;
  return std::make_unique<compress::AcpSgdCodec<TensorOps>>(making, rank, left);
}

constexpr std::array kLines = {
    Line{"fp16", make_half<DType::f16>},
    Line{"bf16", make_half<DType::bf16>},
    Line{"signsgd", make_signsgd, make_signsgd_dense},
    Line{"efsignsgd", make_efsignsgd},
    Line{"onebit", make_onebit},
    Line{"onebit-adam", make_onebit_adam},
    Line{"qsgd", make_qsgd},
    Line{"maxmin", make_maxmin},
    Line{"terngrad", make_terngrad},
    Line{"natural", make_natural},
    Line{"topk", make_topk},
    Line{"randomk", make_randomk},
    Line{"threshold", make_threshold},
    Line{"sidco", make_sidco},
    Line{"dgc", make_dgc, make_dgc_dense},
    Line{"mstopk", make_mstopk},
    Line{"powersgd", make_powersgd},
    Line{"acpsgd", make_acpsgd},
};

const Line* find_line(std::string_view name) {
  const auto* found = std::find_if(kLines.begin(), kLines.end(),
                                   [&](const Line& line) { return line.name == name; });
  return found == kLines.end() ? nullptr : found;
}

const Line& line_of(std::string_view name) {
  if (const Line* line = find_line(name)) return *line;
  std::vector<std::string_view> names;
  for (const Line& line : kLines) names.push_back(line.name);
  throw UsageError(
      fmt::format("compressor {} has no implementation over tensors yet; those that "
                  "have one: {}",
                  name, fmt::join(names, ", ")));
}

Making making_of(const doc::Component& compressor, const compress::Shape& shape,
                 at::Device device) {
  return {compress::make_compressor(compressor), shape, device};
}

/// Its codecs are those over tensors; all else is the compressor's.
class OverTensors : public compress::Compressor {
 public:
  OverTensors(const doc::Component& component, at::Device device)
      : component_(component), device_(device), inner_(compress::make_compressor(component)) {
    line_of(component.name);
    if (component.find(compress::kDenseBelow) == nullptr) return;
    doc::Component all = component;
    std::erase_if(all.options, [](const auto& one) { return one.first == compress::kDenseBelow; });
    of_chunks_ = std::make_unique<OverTensors>(all, device);
  }

  compress::Phases phases() const override { return inner_->phases(); }
  std::vector<compress::Round> rounds(const compress::Shape& shape) const override {
    return inner_->rounds(shape);
  }
  std::vector<compress::Round> rounds(const compress::Shape& shape, int phase) const override {
    return inner_->rounds(shape, phase);
  }
  std::unique_ptr<compress::Codec> codec(const compress::Shape& shape) const override {
    return make_tensor_codec(component_, shape, device_);
  }
  compress::Residual residual() const override { return inner_->residual(); }
  compress::Momentum momentum() const override { return inner_->momentum(); }
  std::unique_ptr<compress::Codec> of_dense(const compress::Shape& shape) const override {
    return make_dense_tensor_codec(component_, shape, device_);
  }
  bool is_two_phase() const override { return inner_->is_two_phase(); }
  /// Without the options that an owner of means does not have: onebit-adam's momentum.
  std::unique_ptr<const compress::Compressor> of_means() const override {
    if (!inner_->of_means()) return nullptr;
    return std::make_unique<OverTensors>(doc::Component{component_.name, {{"beta", "0"}}}, device_);
  }
  std::int64_t remembered_bytes(const compress::Shape& shape) const override {
    return inner_->remembered_bytes(shape);
  }
  double products(const compress::Shape& shape) const override { return inner_->products(shape); }
  bool is_unbiased() const override { return inner_->is_unbiased(); }
  const compress::Compressor& of_chunks() const override {
    return of_chunks_ ? of_chunks_->of_chunks() : *this;
  }

 private:
  doc::Component component_;
  at::Device device_;
  std::unique_ptr<const compress::Compressor> inner_;
  std::unique_ptr<OverTensors> of_chunks_;  // null: itself
};

}  // namespace

std::unique_ptr<TensorCodec> make_tensor_codec(const doc::Component& compressor,
                                               const compress::Shape& shape, at::Device device) {
  const Making making = making_of(compressor, shape, device);
  doc::OptionReader options(compressor);
  return line_of(compressor.name).codec(making, options);
}

std::unique_ptr<TensorCodec> make_dense_tensor_codec(const doc::Component& compressor,
                                                     const compress::Shape& shape,
                                                     at::Device device) {
  const Line& line = line_of(compressor.name);
  if (line.of_dense == nullptr) return nullptr;
  Making making = making_of(compressor, shape, device);
  making.travels_dense = true;
  doc::OptionReader options(compressor);
  return line.of_dense(making, options);
}

std::unique_ptr<TensorCodec> as_tensor_codec(std::unique_ptr<compress::Codec> codec) {
  auto* const over_tensors = dynamic_cast<TensorCodec*>(codec.get());
  LINERATE_CHECK(!codec || over_tensors, "a codec that is none over tensors");
  static_cast<void>(codec.release());
  return std::unique_ptr<TensorCodec>(over_tensors);
}

std::vector<std::string> compressors_without_tensors() {
  std::vector<std::string> without;
  for (const std::string& name : compress::compressors().names())
    if (find_line(name) == nullptr) without.push_back(name);
  return without;
}

std::unique_ptr<const compress::Compressor> over_tensors(const doc::Component& compressor,
                                                         at::Device device) {
  return std::make_unique<OverTensors>(compressor, device);
}

}  // namespace linerate::torch_codecs
