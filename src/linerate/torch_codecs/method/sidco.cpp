// sidco over tensors (compress/method/sidco.cpp). Unlike the others it waits for the device: the
// fit is made on the host, from a few numbers of each stage.
#include <bit>

#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/method/sidco_fit.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/compress/stage_control.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/entries.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::StageControl;

class SidcoTensors : public TensorCodec {
 public:
  SidcoTensors(const Making& making, const compress::SidcoSettings& settings)
      : TensorCodec(making),
        settings_(settings),
        k_(compress::entries_of(settings.density, elements())),
        capacity_(std::min(compress::sidco_capacity(k_), elements())),
        most_stages_(compress::sidco_most_stages(settings.density)),
        control_(StageControl(most_stages_).state()) {}

  std::vector<compress::StateField> state() override {
    return {{"stages", compress::Passing::own, control_}};
  }
  bool is_sane() const override { return StageControl(most_stages_).restore(control_.now()); }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input), magnitudes = magnitude_bits(v);
    const at::Tensor mask = selected(v, magnitudes);
    keep_residual(input, without(v, mask));
    return counted_entries_payload(v, pick(mask, capacity_), round_at(0).bytes);
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    damage_if(average_counted_entries(arrived, round_at(0).bytes, capacity_, "sidco", mean));
  }

  at::Tensor selected(const at::Tensor& v, const at::Tensor& magnitudes) {
    if (to_index(elements()) >= compress::kSampledFrom) {
      const at::Tensor sample = sample_of(v);
      const std::uint32_t least = threshold(sample, magnitude_bits(sample), moments_of(sample));
      if (least != compress::kNoMagnitude) return by_sample(magnitudes, least);
    }
    const Moments moments = moments_of(v);
    if (moments.positive == 0) return magnitudes > 0;
    const std::int64_t wanted = std::min<std::int64_t>(k_, moments.positive);
    const std::uint32_t least = threshold(v, magnitudes, moments);
    if (least == compress::kNoMagnitude) return largest_of(magnitudes, wanted);
    const at::Tensor mask = magnitudes >= static_cast<std::int64_t>(least);
    return mended(magnitudes, mask, mask.sum().item<std::int64_t>(), wanted);
  }

  at::Tensor by_sample(const at::Tensor& magnitudes, std::uint32_t least) {
    at::Tensor mask = magnitudes >= static_cast<std::int64_t>(least);
    auto count = mask.sum().item<std::int64_t>();
    if (count > elements() / static_cast<std::int64_t>(compress::kMostPicked)) {  // it was none
      mask = largest_of(magnitudes, capacity_);
      count = capacity_;
    }
    return mended(magnitudes, mask, count, k_);
  }

  /// compress's observe_and_mend().
  at::Tensor mended(const at::Tensor& magnitudes, const at::Tensor& mask, std::int64_t count,
                    std::int64_t wanted) {
    StageControl control(most_stages_);
    control.restore(control_.now());
    control.observe(static_cast<double>(count) / static_cast<double>(k_));
    control_.next() = control.state();
    if (count > capacity_) return largest_of(magnitudes, mask, capacity_);
    if (settings_.stages > 0 || 2 * count >= wanted) return mask;
    return largest_of(magnitudes, wanted);
  }

  /// A run of every stretch, at a hashed place: random_below(0, stretch, runs) of a power of two.
  at::Tensor sample_of(const at::Tensor& v) const {
    constexpr auto stretch = static_cast<std::int64_t>(compress::kStretch);
    constexpr auto run = static_cast<std::int64_t>(compress::kSampledRun);
    constexpr int bits = std::bit_width(compress::kStretch / compress::kSampledRun) - 1;
    static_assert(compress::kStretch / compress::kSampledRun == 1u << bits);
    const at::Tensor j = at::arange(elements() / stretch, options(at::kLong)).unsqueeze(1);
    const at::Tensor place = shifted_right(random_bits(at::zeros_like(j), j), 64 - bits);
    const at::Tensor first = j * stretch + place * run;
    return v.index_select(0, (first + at::arange(run, options(at::kLong))).view({-1}));
  }

  struct Moments {
    std::int64_t positive = 0;
    compress::FitMoments x;
  };
  static double variance_of(double sum, double squares, double count) {
    return count < 2 ? 0 : std::max(0.0, squares - sum * sum / count) / (count - 1);
  }

  Moments moments_of(const at::Tensor& v) const {
    const at::Tensor x = v.abs().to(at::kDouble), is_positive = x > 0;
    std::vector<at::Tensor> sums = {is_positive.sum().to(at::kDouble), x.sum(), x.square().sum()};
    if (settings_.fit == compress::TailDistribution::gamma)
      sums.push_back(at::where(is_positive, x, 1).log().sum());
    const at::Tensor on_host = at::stack(sums).cpu();
    const auto* sum = on_host.data_ptr<double>();
    Moments moments{static_cast<std::int64_t>(sum[0]), {}};
    if (moments.positive == 0) return moments;
    moments.x = {sum[1] / sum[0], variance_of(sum[1], sum[2], sum[0]),
                 sums.size() > 3 ? sum[3] / sum[0] : 0};
    return moments;
  }

  std::uint32_t threshold(const at::Tensor& v, const at::Tensor& magnitudes,
                          const Moments& moments) const {
    const int wanted = settings_.stages > 0 ? settings_.stages : control_.now().stages;
    return compress::sidco_least(
        settings_.fit, moments.x, static_cast<std::uint64_t>(moments.positive), to_index(v.numel()),
        settings_.density, wanted,
        [&](int, std::uint32_t least) { return tail_of(v, magnitudes, least); });
  }

  /// The excess over `least`: what is summed is as small as what varies.
  static compress::TailFit tail_of(const at::Tensor& v, const at::Tensor& magnitudes,
                                   std::uint32_t least) {
    const at::Tensor is_in = magnitudes >= static_cast<std::int64_t>(least);
    const double origin = std::bit_cast<float>(least);
    const at::Tensor y = at::where(is_in, v.abs().to(at::kDouble) - origin, 0);
    const at::Tensor smallest =
        at::where(is_in, magnitudes, std::int64_t{compress::kNoMagnitude}).amin();
    const at::Tensor on_host =
        at::stack({is_in.sum().to(at::kDouble), y.sum(), y.square().sum(), smallest.to(at::kDouble),
                   magnitudes.amax().to(at::kDouble)})
            .cpu();
    const auto* sum = on_host.data_ptr<double>();
    const auto lowest = static_cast<std::uint32_t>(sum[3]);
    const double to_smallest = static_cast<double>(std::bit_cast<float>(lowest)) - origin;
    return {static_cast<std::uint64_t>(sum[0]), lowest, static_cast<std::uint32_t>(sum[4]),
            sum[0] > 0 ? sum[1] / sum[0] - to_smallest : 0, variance_of(sum[1], sum[2], sum[0])};
  }

  compress::SidcoSettings settings_;
  std::int64_t k_, capacity_;
  int most_stages_;
  compress::Kept<StageControl::State> control_;
};

}  // namespace

Made make_sidco(const Making& making, doc::OptionReader& options) {
  return std::make_unique<SidcoTensors>(making, compress::read_sidco(options));
}

}  // namespace linerate::torch_codecs
