// sidco: magnitudes above a threshold that is fitted to their distribution, in stages
// (entry_codecs.hpp); no sort. Abdelmoniem et al. 2021 (MLSys, arXiv 2101.10761).
//   v[n] f32 -> u32 count, f32 values, u32 indices; at most ceil(1.3 k) of them,
//     k = max(1, floor(density n))
// If more pass the threshold, the largest of them are sent, because cutting by index would starve
// the tensor's end. If less than half of k passes and stages= is not given, the k largest are sent.
//
// The paper fits all of v. Here a large tensor's moments are those of an eighth of it, and v is
// formed and picked in one pass. With 2^17 or more elements the mean is off by some 0.3 %, while
// the control of stages tolerates 20 %.
#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// One tensor's selection. Moments give a threshold (SidcoSearch), the threshold picks entries, and
/// their number adjusts the stages of later steps (StageControl). A large tensor is first tried
/// with a sample. If the sample fits no distribution, the whole tensor is used.
class FittedSelection {
 public:
  FittedSelection(const Input& input, const SidcoSettings& settings, HostOps::Picking& room,
                  Kept<StageControl>& control)
      : settings_(settings),
        k_(to_index(
            entries_of(settings.density, static_cast<std::int64_t>(input.gradient.size())))),
        capacity_(to_index(sidco_capacity(static_cast<std::int64_t>(k_)))),
        control_(control),
        sample_(room.sample),
        sent_(room.sent) {
    if (!select_by_sample(input)) select_by_all(input);
  }

 private:
  /// False, and nothing done, if the tensor is small or its sample fits no distribution.
  bool select_by_sample(const Input& input) {
    const std::size_t n = input.gradient.size();
    if (n < kSampledFrom) return false;
    take_sample(input);
    take_moments([&](auto add) { add(std::span<const float>(sample_)); });
    const std::uint32_t least = threshold(sample_);
    if (least == kNoMagnitude) return false;
    sent_.clear();
    if (!add_and_select(input, least, n / kMostPicked, sent_))  // the sample was none
      select_largest(corrected(input), capacity_, sent_);
    observe_and_mend(corrected(input), k_);
    return true;
  }

  void take_sample(const Input& input) {
    const std::size_t stretches = input.gradient.size() / kStretch;
    sample_.resize(stretches * kSampledRun);
    for (std::size_t j = 0; j < stretches; ++j) {
      const std::size_t first =
          j * kStretch + kSampledRun * random_below(0, j, kStretch / kSampledRun);
      const float* g = input.gradient.data() + first;
      float* out = &sample_[j * kSampledRun];
      std::copy(g, g + kSampledRun, out);
      if (input.residual.empty()) continue;
      for (std::size_t i = 0; i < kSampledRun; ++i) out[i] += input.residual[first + i];
    }
  }

  /// Of all x = |v| > 0. `visit` calls its argument with each part of v.
  template <class Visit>
  void take_moments(Visit visit) {
    const bool has_logs = settings_.fit == TailDistribution::gamma;
    Moments moments;
    LogSum logs;
    visit([&](std::span<const float> part) {
      moments.add(part);
      if (has_logs) logs.add(part);
    });
    positive_ = moments.count();
    x_ = {moments.mean(), moments.variance(), 0};
    if (has_logs && positive_ > 0) x_.mean_log = logs.sum() / static_cast<double>(positive_);
  }

  void select_by_all(const Input& input) {
    sent_.clear();
    take_moments([&](auto add) { add_and_take(input, add); });
    if (positive_ == 0) return;
    const std::span<const float> v = corrected(input);
    const std::uint32_t least = threshold(v);
    if (least == kNoMagnitude)
      return select_largest(v, std::min<std::size_t>(k_, positive_), sent_);
    pick(v, least);
    observe_and_mend(v, std::min<std::size_t>(k_, positive_));
  }

  /// Sends the largest of what is selected, or more than that (sidco_count()).
  void observe_and_mend(std::span<const float> v, std::size_t wanted) {
    const std::size_t selected = sent_.size();
    const auto count = to_index(sidco_count(settings_, static_cast<std::int64_t>(k_),
                                            static_cast<std::int64_t>(selected),
                                            static_cast<std::int64_t>(wanted), control_));
    if (count < selected) sent_.keep(cut_of_largest(sent_.values(), count));
    if (count > selected) select_largest(v, count, sent_);
  }

  /// Bits of the least magnitude to send; kNoMagnitude if no distribution fits.
  std::uint32_t threshold(std::span<const float> v) {
    picked_from_ = kNoMagnitude;
    const int wanted = settings_.stages > 0 ? settings_.stages : control_.now().stages;
    SidcoSearch search(settings_.fit, x_, positive_, v.size(), settings_.density, wanted);
    for (int stage = 2; !search.is_over(); ++stage) {
      // The second stage's tail is large, so its moments are taken in place. The tails of later
      // stages are a few percent of v. They are picked out first, and stay picked.
      if (stage > 2) pick(v, search.least());
      search.take(tail_of(stage == 2 ? v : sent_.values(), search.least()));
    }
    return search.least();
  }

  /// Fills sent_ with all that reach `least`. If sent_ already has these and more, it is only
  /// filtered.
  void pick(std::span<const float> v, std::uint32_t least) {
    if (picked_from_ <= least) {
      sent_.keep_at_least(least);
    } else {
      sent_.clear();
      select(v, least, 0, sent_);
    }
    picked_from_ = least;
  }

  const SidcoSettings& settings_;
  std::size_t k_, capacity_;
  Kept<StageControl>& control_;
  std::vector<float>& sample_;
  // Counts and moments, of the sample if there is one.
  std::uint64_t positive_ = 0;
  std::uint32_t picked_from_ = kNoMagnitude;  // sent_ holds all that reach it
  FitMoments x_;
  Selection& sent_;
};

std::unique_ptr<const Compressor> make_sidco(doc::OptionReader& options) {
  const double density = read_density(options);
  const auto fit =
      static_cast<TailDistribution>(options.choice("fit", {"exponential", "pareto", "gamma"}));
  const std::int64_t stages = options.integer("stages", 0);
  if (stages < 0 || stages > 64)
    options.refuse("stages", "1 to 64, or 0 to follow what they achieve");
  const SidcoSettings settings{density, fit, static_cast<int>(stages)};
  return built_in({.rounds = one_round([density](std::int64_t n) {
                     const std::int64_t k = entries_of(density, n);
                     return gathered_entries(sidco_capacity(k), k);
                   }),
                   .choice = CodecWith<SidcoCodec, SidcoSettings>{{settings}}});
}

}  // namespace

HostOps::Chosen HostOps::choose_by_fit(const Sending& tensor, Picking& room,
                                       Kept<StageControl>& control, const SidcoSettings& settings) {
  FittedSelection(tensor, settings, room, control);
  return room;
}

CompressorLine compressor_sidco() {
  return {"sidco", make_sidco,
          "Magnitudes above a fitted threshold: sidco(density=0.01, "
          "fit=exponential|pareto|gamma, stages=).",
          "Abdelmoniem et al. 2021 (arXiv 2101.10761)"};
}

}  // namespace linerate::compress
