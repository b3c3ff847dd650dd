// topk, randomk, threshold and mstopk over tensors (compress/sparse_payload.hpp).
#include <cmath>

#include "linerate/compress/distinct_indices.hpp"
#include "linerate/compress/kernel/magnitude.hpp"
#include "linerate/compress/kernel/two_bit.hpp"
#include "linerate/compress/method/density.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/torch_codecs/entries.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

/// k entries, whatever the values: all but how they are chosen.
class FixedEntryTensors : public TensorCodec {
 public:
  FixedEntryTensors(const Making& making, std::string method, double density)
      : TensorCodec(making),
        method_(std::move(method)),
        k_(compress::entries_of(density, elements())) {}

 protected:
  std::int64_t k() const { return k_; }
  /// bool[n], k of them.
  virtual at::Tensor chosen(const at::Tensor& v, const TensorInput& input) = 0;

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input);
    const at::Tensor mask = chosen(v, input);
    keep_residual(input, without(v, mask));
    return {entries_payload(v, pick(mask, k_)), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, compress::kEntryBytes * k_, method_);
    const ReadEntries read = read_entries(arrived, k_, elements());
    damage_if(read.wrong.any());
    average_entries(arrived, read, mean);
  }

  std::string method_;
  std::int64_t k_;
};

class TopKTensors : public FixedEntryTensors {
 public:
  using FixedEntryTensors::FixedEntryTensors;

 private:
  at::Tensor chosen(const at::Tensor& v, const TensorInput&) override {
    return largest_of(magnitude_bits(v), k());
  }
};

/// The bisection of compress/method/mstopk.cpp with numbers that stay on the device: as many counts
/// of all elements as it may take. Larger thresholds are reached by fewer, so the best of them are
/// an extreme, and those after the last one that it needs change nothing.
class MsTopKTensors : public FixedEntryTensors {
 public:
  MsTopKTensors(const Making& making, const compress::MsTopKSettings& settings)
      : FixedEntryTensors(making, "mstopk", settings.density), halvings_(settings.halvings) {}

 private:
  /// Bits whose reach is the most elements that are no more than k, and the fewest that are more.
  struct Bracket {
    at::Tensor upper, lower;  // i32
  };
  /// Every threshold that was tried, and how many elements reach it.
  struct Probes {
    std::vector<at::Tensor> least, count;

    const at::Tensor& add(const at::Tensor& magnitudes, const at::Tensor& threshold) {
      least.push_back(bits_at_least(threshold));
      return count.emplace_back((magnitudes >= least.back()).sum());
    }
    Bracket bracket(std::int64_t k) const {
      const at::Tensor all = at::stack(least), fits = at::stack(count) <= k;
      return {at::where(fits, all, std::int64_t{compress::kNoMagnitude}).amin(),
              at::where(fits, 0, all).amax()};
    }
  };

  Bracket bisect(const at::Tensor& v, const at::Tensor& magnitudes) const {
    const auto f64 = options(at::kDouble);
    const at::Tensor absolute = v.abs(), count = (magnitudes > 0).sum().to(at::kDouble);
    const at::Tensor mean = absolute.sum(at::kDouble) / count.clamp_min(1) * count /
                            at::full({}, static_cast<double>(elements()), f64);
    Probes probes;
    const at::Tensor is_above = probes.add(magnitudes, mean) >= k();
    const at::Tensor base = at::where(is_above, mean, 0);
    const at::Tensor width = at::where(is_above, absolute.amax().to(at::kDouble), mean) - base;
    at::Tensor low = at::zeros({}, f64), high = at::ones({}, f64);
    for (int i = 0; i < halvings_; ++i) {
      const at::Tensor ratio = (low + high) / 2;
      const at::Tensor fits = probes.add(magnitudes, base + ratio * width) <= k();
      high = at::where(fits, ratio, high);
      low = at::where(fits, low, ratio);
    }
    return probes.bracket(k());
  }

  at::Tensor chosen(const at::Tensor& v, const TensorInput& input) override {
    const at::Tensor magnitudes = magnitude_bits(v);
    const Bracket found = bisect(v, magnitudes);
    const at::Tensor upper = magnitudes >= found.upper, wanted = k() - upper.sum();
    // A run of the others from a random place; of none if the upper ones are k.
    const at::Tensor others = at::bitwise_and(magnitudes >= found.lower, upper.bitwise_not());
    const at::Tensor place = others.cumsum(0) - 1;
    const double random = linerate::random_unit(input.keys.own, 0);
    const at::Tensor start = ((others.sum() - wanted + 1).to(at::kDouble) * random).to(at::kLong);
    const at::Tensor in_run = at::bitwise_and(place >= start, place < start + wanted);
    return at::bitwise_or(upper, at::bitwise_and(others, in_run));
  }

  int halvings_;
};

/// Its places follow from the key alone, so the host draws them. It copies 4 k bytes from pinned
/// memory of their own type, because a copy that converts would wait for itself.
class RandomKTensors : public TensorCodec {
 public:
  RandomKTensors(const Making& making, const compress::RandomKSettings& settings)
      : TensorCodec(making),
        places_(settings.places),
        k_(compress::entries_of(settings.density, elements())) {}

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    index_ = drawn(input.keys.shared);
    const at::Tensor v = corrected(input);
    const double scale = static_cast<double>(elements()) / static_cast<double>(k_);
    const float factor = input.residual.defined() ? 1.0f : static_cast<float>(scale);
    const at::Tensor sent = v.index_select(0, index_) * factor + 0.0f;
    if (input.residual.defined()) keep_residual(input, v.index_fill(0, index_, 0));
    return {bytes_of(sent), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    mean.zero_().index_copy_(0, index_, read_mean(arrived, k_, "randomk"));
  }

  at::Tensor drawn(std::uint64_t key) const {
    const auto n = static_cast<std::uint64_t>(elements());
    if (places_ == compress::Places::block) {
      const auto start = static_cast<std::int64_t>(random_below(key, 0, n));
      return (at::arange(k_, options(at::kLong)) + start).remainder(elements());
    }
    const compress::DistinctIndices scattered(key, n);
    const at::Tensor index =
        at::empty({k_}, at::TensorOptions(at::kInt).pinned_memory(!device().is_cpu()));
    auto* to = index.data_ptr<std::int32_t>();
    for (std::int64_t j = 0; j < k_; ++j)
      to[j] = static_cast<std::int32_t>(scattered.at(static_cast<std::uint64_t>(j)));
    return index.to(device(), at::kInt, true).to(at::kLong);
  }

  compress::Places places_;
  std::int64_t k_;
  at::Tensor index_;  // of the step: drawn by encode(), used again by decode()
};

/// Both ways, by the last tau and by the exact one, and which counts is decided on the device. So
/// the exact magnitude is looked for in every step, not only where the last one is off.
class ThresholdTensors : public TensorCodec {
 public:
  ThresholdTensors(const Making& making, const compress::ThresholdSettings& settings)
      : TensorCodec(making),
        fixed_(settings.tau),
        target_(compress::entries_of(settings.density, elements())),
        most_(compress::threshold_most_entries(elements())),
        tau_(at::zeros({}, options(at::kFloat))) {}

  std::vector<compress::StateField> state() override {
    return {state_field("tau", compress::Passing::own, tau_, false)};
  }
  bool is_sane() const override {
    const float tau = tau_.now().item<float>();
    return tau >= 0 && std::isfinite(tau);
  }

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input), magnitudes = magnitude_bits(v);
    const at::Tensor least =
        fixed_ ? at::full({}, std::int64_t{compress::magnitude_bits(*fixed_)}, options(at::kInt))
               : least_by_density(magnitudes);
    const at::Tensor mask = magnitudes >= least;
    const Picked picked = pick(mask, most_);
    const at::Tensor is_dense = picked.count > most_;
    keep_residual(input, without(v, at::bitwise_or(mask, is_dense)));
    const std::int64_t bytes = round_at(0).bytes;
    const TensorPayload entries = counted_entries_payload(v, picked, bytes);
    const at::Tensor all =
        joined({at::full({1}, -1, options(at::kInt)), v + 0.0f}, bytes);  // -1: kAllValues
    static_assert(compress::kAllValues == 0xffffffff);
    return {at::where(is_dense, all, entries.bytes), at::where(is_dense, bytes, entries.used)};
  }

  at::Tensor least_by_density(const at::Tensor& magnitudes) {
    const at::Tensor tau = tau_.now();
    const at::Tensor by_tau = magnitude_bits(tau.view({1})).select(0, 0);
    const at::Tensor count = (magnitudes >= by_tau).sum();
    const std::int64_t limit = std::min(most_, 2 * target_);
    const at::Tensor is_near = at::bitwise_and(count <= limit, 2 * count >= target_);
    const at::Tensor keeps = at::bitwise_and(tau > 0, is_near);
    const at::Tensor share =
        count.to(at::kDouble) / at::full({}, static_cast<double>(target_), options(at::kDouble));
    const at::Tensor followed =
        (tau.to(at::kDouble) * share.pow(compress::kTauFollows)).to(at::kFloat);
    const at::Tensor exact = kth_largest(magnitudes, target_);  // 0: all of v is, nothing is sent
    const at::Tensor taken = at::where(exact > 0, floats_of(exact.view({1})).select(0, 0), tau);
    tau_.write(at::where(keeps, followed, taken));
    const at::Tensor least_exact =
        at::where(exact > 0, exact, std::int64_t{compress::kNoMagnitude});
    return at::where(keeps, by_tau, least_exact);
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    const std::int64_t bytes = round_at(0).bytes;
    check_gathered(arrived, bytes, "threshold");
    const at::Tensor is_dense =
        at::stack(arrived.payloads).narrow(1, 0, 4).view(at::kInt).select(1, 0) == -1;
    const ReadEntries read = read_counted_entries(arrived, most_, elements());
    at::Tensor wrong = at::bitwise_and(read.wrong, is_dense.bitwise_not());
    if (arrived.used.defined())
      wrong = at::bitwise_or(wrong, at::bitwise_and(is_dense, arrived.used != bytes));
    damage_if(wrong.any());
    average_entries(arrived, read, mean, [&](std::size_t p, const at::Tensor& sum) {
      const at::Tensor all = section(arrived.payloads[p], 4, 4 * elements(), at::kFloat);
      sum.add_(at::where(is_dense.select(0, static_cast<std::int64_t>(p)), all, 0));
    });
  }

  std::optional<float> fixed_;
  std::int64_t target_, most_;
  KeptTensor tau_;  // 0: not taken yet
};

class TwoBitTensors : public TensorCodec {
 public:
  TwoBitTensors(const Making& making, float tau) : TensorCodec(making), tau_(tau) {}

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const at::Tensor v = corrected(input);
    const at::Tensor code = 1 + (v >= tau_).to(at::kByte) - (v <= -tau_).to(at::kByte);
    keep_residual(input, v - level_of(code));
    return {joined({pack_codes(code, 2)}, round_at(0).bytes), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_gathered(arrived, round_at(0).bytes, "threshold");
    average(arrived, mean, [&](std::size_t p) {
      const std::int64_t room = 4 * arrived.payloads[p].numel();
      const at::Tensor codes = unpack_codes(arrived.payloads[p], room, 2);
      damage_if((codes == 3).any());
      damage_if((codes.narrow(0, elements(), room - elements()) != 0).any());
      return level_of(codes.narrow(0, 0, elements()));
    });
  }

  at::Tensor level_of(const at::Tensor& codes) const { return (codes.to(at::kFloat) - 1) * tau_; }

  float tau_;
};

}  // namespace

Made make_topk(const Making& making, doc::OptionReader& options) {
  return std::make_unique<TopKTensors>(making, "topk", compress::read_density(options));
}
Made make_mstopk(const Making& making, doc::OptionReader& options) {
  return std::make_unique<MsTopKTensors>(making, compress::read_mstopk(options));
}
Made make_randomk(const Making& making, doc::OptionReader& options) {
  return std::make_unique<RandomKTensors>(making, compress::read_randomk(options));
}
Made make_threshold(const Making& making, doc::OptionReader& options) {
  const compress::ThresholdSettings settings = compress::read_threshold(options);
  if (settings.form == compress::ThresholdForm::two_bit)
    return std::make_unique<TwoBitTensors>(making, *settings.tau);
  return std::make_unique<ThresholdTensors>(making, settings);
}

}  // namespace linerate::torch_codecs
