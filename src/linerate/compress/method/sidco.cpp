// sidco: magnitudes above a threshold that is fitted to their distribution, in stages; no sort.
// Abdelmoniem et al. 2021 (MLSys, arXiv 2101.10761).
// v[n] f32 -> u32 count, f32 values, u32 indices; at most ceil(1.3 k) of them, k = max(1,
// floor(density n)). Where more pass the threshold the largest ones are sent: cutting by index
// would starve the tensor's end.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/kernel/largest.hpp"
#include "linerate/compress/kernel/magnitude.hpp"
#include "linerate/compress/kernel/moments.hpp"
#include "linerate/compress/kernel/select.hpp"
#include "linerate/compress/method/density.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/compress/stage_control.hpp"
#include "linerate/compress/state.hpp"
#include "linerate/compress/tail_fit.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kName = "sidco";
/// The share that the first of several stages is fitted for (the paper's delta_1).
constexpr double kFirstRatio = 0.25;
/// Fewer magnitudes than this say nothing about a distribution.
constexpr std::uint64_t kLeastForFit = 64;

std::int64_t capacity_of(std::int64_t k) { return (13 * k + 9) / 10; }

class SidcoCodec : public Codec {
 public:
  SidcoCodec(const Shape& shape, Fit fit, double density, int fixed_stages)
      : shape_(shape),
        fit_(fit),
        density_(density),
        fixed_stages_(fixed_stages),
        k_(static_cast<std::size_t>(entries_of(density, shape.elements))),
        capacity_(static_cast<std::size_t>(capacity_of(entries_of(density, shape.elements)))),
        control_(static_cast<int>(std::ceil(std::log(density) / std::log(0.5)))) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    const KeepDenormals keep;
    sent_.clear();
    picked_from_ = kNoMagnitude;
    first_pass(input);
    if (positive_ > 0) select_tail(corrected(input));
    clear_sent(sent_, input.residual);
    return write_counted_entries(sent_, payload);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    const KeepDenormals keep;
    decode_counted_entries(arrived, capacity_, mean, kName);
  }

  std::vector<std::byte> save() const override {
    StateWriter state(kName, shape_);
    state.put(control_.state());
    return state.take();
  }
  void load(std::span<const std::byte> saved) override {
    StateReader state(saved, kName, shape_);
    const auto control = state.get<StageControl::State>();
    state.finish();
    if (!control_.restore(control))
      throw InputError("checkpoint", "state of sidco: its counters are out of range");
  }

 private:
  /// Adds the residual and takes the moments of all x = |v| > 0, chunk by chunk in the cache.
  void first_pass(const Input& input) {
    Moments moments;
    LogSum logs;
    const std::span<const float> v = corrected(input);
    for (std::size_t i = 0; i < v.size(); i += kChunk) {
      const std::size_t count = std::min(kChunk, v.size() - i);
      add_residual(input, i, count);
      moments.add(v.subspan(i, count));
      if (fit_ == Fit::gamma) logs.add(v.subspan(i, count));
    }
    positive_ = moments.count();
    x_ = {moments.mean(), moments.variance(), 0};
    if (fit_ == Fit::gamma && positive_ > 0)
      x_.mean_log = logs.sum() / static_cast<double>(positive_);
  }

  /// Magnitudes that differ by less than f32 shows fit no distribution.
  bool all_equal() const { return x_.variance <= 1e-14 * x_.mean * x_.mean; }

  void select_tail(std::span<const float> v) {
    const std::uint32_t least = threshold(v);
    if (least == kNoMagnitude)
      return select_largest(v, std::min<std::size_t>(k_, positive_), sent_);
    pick(v, least);
    control_.observe(static_cast<double>(sent_.size()) / static_cast<double>(k_));
    if (sent_.size() > capacity_) sent_.keep(cut_of_largest(sent_.values(), capacity_));
  }

  /// Bits of the least magnitude to send; kNoMagnitude where no distribution fits.
  std::uint32_t threshold(std::span<const float> v) {
    if (positive_ < kLeastForFit || all_equal()) return kNoMagnitude;
    const double d =
        std::min(1.0, density_ * static_cast<double>(v.size()) / static_cast<double>(positive_));
    const int wanted = fixed_stages_ > 0 ? fixed_stages_ : control_.stages();
    const int stages = d >= kFirstRatio ? 1 : wanted;
    const double ratio = std::pow(d / kFirstRatio, 1.0 / std::max(1, stages - 1));
    std::uint32_t least = bits_of(fitted_threshold(fit_, x_, stages == 1 ? d : kFirstRatio));
    for (int stage = 2; stage <= stages && least != kNoMagnitude; ++stage) {
      const TailMoments tail = stage == 2 ? whole_tail(v, least) : picked_tail(v, least);
      if (tail.count() < 2) break;
      if (tail.smallest() == tail.largest()) return kNoMagnitude;
      const double m = std::bit_cast<float>(tail.smallest());
      least = bits_of(m + fitted_excess(fit_, {tail.mean_excess(), tail.variance(), 0}, ratio));
      if (stage == 2) next_guess_ = least;
    }
    if (stages > 1) guess_ = bits_at_least(0.9 * std::bit_cast<float>(next_guess_));
    return least;
  }

  /// Of what exceeds a threshold. It is rounded to f32 first, so that the last bit of a machine's
  /// logarithm hardly ever shows.
  static std::uint32_t bits_of(double threshold) {
    if (!std::isfinite(threshold)) return kNoMagnitude;
    return std::max(1u, bits_above(static_cast<float>(threshold)));
  }

  /// The second stage's tail is large: its moments are taken where it lies. On the way, while a
  /// chunk is in the cache, picks what passes a little less than this stage's threshold of the step
  /// before: the tail of the next stage, or what is sent, most likely. That guess saves a pass, and
  /// never changes what is sent.
  TailMoments whole_tail(std::span<const float> v, std::uint32_t least) {
    TailMoments tail(least);
    bool is_picking = guess_ > 0;
    for (std::size_t i = 0; i < v.size(); i += kChunk) {
      const auto chunk = v.subspan(i, std::min(kChunk, v.size() - i));
      tail.add(chunk);
      if (is_picking) select(chunk, guess_, i, sent_);
      is_picking = is_picking && sent_.size() <= v.size() / 8;
    }
    if (is_picking) picked_from_ = guess_;
    return tail;
  }

  /// The tails of later stages are picked out first, and stay so: a few percent of v.
  TailMoments picked_tail(std::span<const float> v, std::uint32_t least) {
    pick(v, least);
    TailMoments tail(least);
    tail.add(sent_.values());
    return tail;
  }

  /// Makes sent_ what reaches `least`; from what is picked, if that is all there.
  void pick(std::span<const float> v, std::uint32_t least) {
    if (picked_from_ <= least) {
      sent_.keep_at_least(least);
    } else {
      sent_.clear();
      select(v, least, 0, sent_);
    }
    picked_from_ = least;
  }

  Shape shape_;
  Fit fit_;
  double density_;
  int fixed_stages_;  // 0: as the control says
  std::size_t k_, capacity_;
  StageControl control_;
  std::uint32_t guess_ = 0;  // bits; 0: none yet
  // Of the step at hand.
  std::uint64_t positive_ = 0;
  std::uint32_t next_guess_ = 0;
  std::uint32_t picked_from_ = kNoMagnitude;  // sent_ holds all that reach it
  FitMoments x_;
  Selection sent_;
};

class Sidco : public Compressor {
 public:
  Sidco(Fit fit, double density, int fixed_stages)
      : fit_(fit), density_(density), fixed_stages_(fixed_stages) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    const std::int64_t capacity = capacity_of(entries_of(density_, shape.elements));
    return one_round_if_smaller(
        shape, {Combine::gather, DType::u8, kCountBytes + kEntryBytes * capacity, true,
                kCountBytes + kEntryBytes * entries_of(density_, shape.elements)});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<SidcoCodec>(shape, fit_, density_, fixed_stages_);
  }
  Residual residual() const override { return Residual::needed; }

 private:
  Fit fit_;
  double density_;
  int fixed_stages_;
};

std::unique_ptr<const Compressor> make(doc::OptionReader& options) {
  const double density = read_density(options);
  const auto fit = static_cast<Fit>(options.choice("fit", {"exponential", "pareto", "gamma"}));
  const std::int64_t stages = options.integer("stages", 0);
  if (stages < 0 || stages > 64)
    options.fail(
        "stages",
        fmt::format("expected 1 to 64, or 0 to follow what they achieve, found {}", stages));
  return std::make_unique<Sidco>(fit, density, static_cast<int>(stages));
}

}  // namespace

CompressorLine compressor_sidco() {
  return {"sidco", make,
          "Magnitudes above a fitted threshold: sidco(density=0.01, "
          "fit=exponential|pareto|gamma, stages=).",
          "Abdelmoniem et al. 2021 (arXiv 2101.10761)"};
}

}  // namespace linerate::compress
