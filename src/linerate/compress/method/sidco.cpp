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

/// Of each stretch a run of v, before v is formed.
void take_sample(const Input& input, std::vector<float>& sample) {
  const std::size_t stretches = input.gradient.size() / kStretch;
  sample.resize(stretches * kSampledRun);
  for (std::size_t j = 0; j < stretches; ++j) {
    const std::size_t first =
        j * kStretch + kSampledRun * random_below(0, j, kStretch / kSampledRun);
    const float* g = input.gradient.data() + first;
    float* out = &sample[j * kSampledRun];
    std::copy(g, g + kSampledRun, out);
    if (input.residual.empty()) continue;
    for (std::size_t i = 0; i < kSampledRun; ++i) out[i] += input.residual[first + i];
  }
}

/// Searches v, and picks what reaches the magnitude that is found.
class FittedSelection {
 public:
  FittedSelection(const SidcoSettings& settings, int stages, Selection& sent)
      : settings_(settings), stages_(stages), sent_(sent) {}

  /// `visit` calls its argument with each part of v, which may be formed on the way. The second
  /// stage's tail is large, so its moments are taken in place. The tails of later stages are a few
  /// percent of v. They are picked out first, and stay picked.
  template <class Visit>
  SidcoFit fit(std::span<const float> v, Visit visit) {
    const bool has_logs = settings_.fit == TailDistribution::gamma;
    Moments moments;
    LogSum logs;
    visit([&](std::span<const float> part) {
      moments.add(part);
      if (has_logs) logs.add(part);
    });
    const std::uint64_t positive = moments.count();
    FitMoments x{moments.mean(), moments.variance(), 0};
    if (has_logs && positive > 0) x.mean_log = logs.sum() / static_cast<double>(positive);
    picked_from_ = kNoMagnitude;
    SidcoSearch search(settings_.fit, x, positive, v.size(), settings_.density, stages_);
    for (int stage = 2; !search.is_over(); ++stage) {
      if (stage > 2) pick(v, search.least());
      search.take(tail_of(stage == 2 ? v : sent_.values(), search.least()));
    }
    return search.found();
  }

  /// All that reach `least`. If they are picked already with others, these are filtered out.
  void pick(std::span<const float> v, std::uint32_t least) {
    if (picked_from_ <= least) {
      sent_.keep_at_least(least);
    } else {
      sent_.clear();
      select(v, least, 0, sent_);
    }
    picked_from_ = least;
  }

 private:
  const SidcoSettings& settings_;
  int stages_;
  std::uint32_t picked_from_ = kNoMagnitude;  // sent_ holds all that reach it
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

/// Moments give a threshold (SidcoSearch), the threshold picks entries, and their number adjusts
/// the stages of later steps (StageControl). A large tensor is first tried with a sample. If the
/// sample fits no distribution, the whole tensor is used.
HostOps::Chosen HostOps::choose_by_fit(const Sending& tensor, Picking& room,
                                       Kept<StageControl>& control, const SidcoSettings& settings) {
  const std::span<const float> v = corrected(tensor);
  const auto n = static_cast<std::int64_t>(v.size());
  Selection& sent = room.sent;
  FittedSelection selection(settings, sidco_stages(settings, control), sent);
  SidcoFit fit;
  if (v.size() >= kSampledFrom) {
    take_sample(tensor, room.sample);
    fit = selection.fit(room.sample, [&](auto add) { add(std::span<const float>(room.sample)); });
    fit.by_sample = fit.least != kNoMagnitude;
  }
  bool has_all = true;  // that reach the fitted magnitude
  if (fit.by_sample) {
    sent.clear();
    has_all = add_and_select(tensor, fit.least, to_index(n / kMostPicked), sent);
  } else {
    fit = selection.fit(v, [&](auto add) { add_and_take(tensor, add); });
    selection.pick(v, fit.least);
  }
  const std::int64_t reached = has_all ? std::ssize(sent.values()) : n;
  const auto [count, are_largest] = sidco_sent(settings, n, fit, reached, control);
  if (are_largest && has_all && count < reached)
    sent.keep(cut_of_largest(sent.values(), to_index(count)));
  else if (are_largest)
    select_largest(v, to_index(count), sent);
  return room;
}

CompressorLine compressor_sidco() {
  return {"sidco", make_sidco,
          "Magnitudes above a fitted threshold: sidco(density=0.01, "
          "fit=exponential|pareto|gamma, stages=).",
          "Abdelmoniem et al. 2021 (arXiv 2101.10761)"};
}

}  // namespace linerate::compress
