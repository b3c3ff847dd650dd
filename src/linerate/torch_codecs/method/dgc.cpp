// dgc over tensors (compress/method/dgc.cpp).
#include <cmath>

#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/torch_codecs/entries.hpp"
#include "linerate/torch_codecs/method/dense_momentum.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

class DgcTensors : public TensorCodec {
 public:
  DgcTensors(const Making& making, const compress::DgcSettings& settings)
      : TensorCodec(making),
        settings_(settings),
        densities_(compress::dgc_densities(settings)),
        momentum_(at::zeros({elements()}, options(at::kFloat))),
        accumulated_(at::zeros({elements()}, options(at::kFloat))) {}

  std::vector<compress::StateField> state() override {
    return {state_field("momentum", compress::Passing::mean, momentum_),
            state_field("accumulated", compress::Passing::owed, accumulated_)};
  }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const double density =
        input.phase < 0 ? settings_.density : densities_.at(to_index(input.phase));
    most_ = compress::dgc_most_entries(density, elements());
    const auto [u, r] = added(input);
    const at::Tensor magnitudes = magnitude_bits(r);
    const at::Tensor selected = about(magnitudes, density, input.keys.own);
    const at::Tensor mask = largest_of(magnitudes, selected, most_);
    momentum_.write(without(u, mask));
    accumulated_.write(without(r, mask));
    return counted_entries_payload(r, pick(mask, most_), round_at(0).bytes);
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    damage_if(average_counted_entries(arrived, round_at(0).bytes, most_, "dgc", mean));
  }

  struct Sums {
    at::Tensor u, r;
  };
  /// u and r with this step's gradient.
  Sums added(const TensorInput& input) {
    const auto m = static_cast<float>(settings_.momentum);
    at::Tensor step = input.gradient;
    if (settings_.clip) step = step * clip_scale(input);
    const at::Tensor &u = momentum_.now(), &r = accumulated_.now();
    if (settings_.nesterov) {
      const at::Tensor next = (u + step) * m;
      return {next, r + next + step};
    }
    const at::Tensor next = u * m + step;
    return {next, r + next};
  }
  at::Tensor clip_scale(const TensorInput& input) const {
    const at::Tensor norm = input.gradient.to(at::kDouble).square().sum().sqrt();
    const at::Tensor most = at::full({}, *settings_.clip / std::sqrt(input.ranks), norm.options());
    return at::where(norm > most, (most / norm).to(at::kFloat), 1.0f).to(at::kFloat);
  }

  /// Those that reach a sample's threshold, lowered while they are much fewer than wanted: all
  /// thresholds are tried, and the first that does is taken.
  at::Tensor about(const at::Tensor& magnitudes, double density, std::uint64_t key) const {
    const std::int64_t stride = compress::dgc_stride(density, elements());
    const auto start =
        static_cast<std::int64_t>(random_below(key, 0, static_cast<std::uint64_t>(stride)));
    const at::Tensor sample = magnitudes.slice(0, start, std::nullopt, stride).contiguous();
    const auto k =
        static_cast<std::int64_t>(std::ceil(density * static_cast<double>(sample.numel())));
    at::Tensor threshold = floats_of(kth_largest(sample, k).view({1})), least;
    at::Tensor is_found = at::zeros({}, options(at::kBool));
    for (int pass = 0; pass < compress::kDgcMostPasses; ++pass) {
      const at::Tensor tried = magnitude_bits(threshold).select(0, 0).clamp_min(1);
      least = pass == 0 ? tried : at::where(is_found, least, tried);
      const at::Tensor selected = (magnitudes >= least).sum();
      // compress::is_enough_for_dgc() of a number on the device.
      is_found = at::bitwise_or(5 * selected >= 4 * most_, least == 1);
      threshold = threshold * compress::kDgcLowered;
    }
    return magnitudes >= least;
  }

  compress::DgcSettings settings_;
  std::vector<double> densities_;  // of phases
  std::int64_t most_ = 0;          // entries, in the step at hand
  KeptTensor momentum_, accumulated_;
};

class DgcDenseTensors : public DenseMomentum {
 public:
  DgcDenseTensors(const Making& making, const compress::DgcSettings& settings)
      : DenseMomentum(making), settings_(settings) {}

 private:
  void do_decode(int, const TensorArrived&, const at::Tensor& mean) override {
    const auto m = static_cast<float>(settings_.momentum);
    const at::Tensor& u = momentum_.now();
    momentum_.write(settings_.nesterov ? (u + mean) * m : u * m + mean);
    mean.copy_(settings_.nesterov ? momentum_.next() + mean : momentum_.next());
  }

  compress::DgcSettings settings_;
};

}  // namespace

Made make_dgc(const Making& making, doc::OptionReader& options) {
  return std::make_unique<DgcTensors>(making, compress::read_dgc(options));
}
Made make_dgc_dense(const Making& making, doc::OptionReader& options) {
  return std::make_unique<DgcDenseTensors>(making, compress::read_dgc(options));
}

}  // namespace linerate::torch_codecs
