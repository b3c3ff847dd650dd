// dgc: Lin et al. 2018, Deep Gradient Compression (ICLR, arXiv 1712.01887). In place of a residual
// a rank keeps a momentum u and its sum r of all that was not sent. The optimizer applies the
// decoded mean without momentum of its own.
//   u <- m u + g, r <- r + u           (Nesterov: u <- m (u + g), r <- r + u + g)
//   r[n] f32 -> u32 count, f32 values, u32 indices: |r| above a threshold from a sample, at
//     most K = ceil(density n); then u and r of what is sent become 0 (momentum factor masking)
// So an element that waits for ten steps gathers the momentum that it would have had. Without the
// masking, u would go on pushing in a direction that was sent long ago.
//
// Warm-up: densities of 25, 6.25, 1.5625, 0.4 and 0.1 %, those above `density`, an equal part of
// `warmup` steps each. Only matrices are coded: vectors travel dense.
//
// Example: m = .9, and the gradients of an element are 1, 1 and 1. u is 1, 1.9 and 2.71, and r is
// 1, 2.9 and 5.61. If the element is sent in the third step, its payload has 5.61, and u and r
// begin again at 0.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

constexpr std::array kWarmUpDensities = {0.25, 0.0625, 0.015625, 0.004, 0.001};

/// The densities of the phases, the steady one last, and the steps of those of the warm-up.
/// Example: density=0.01 and warmup=90. Three of the paper's densities are above .01, so each of
/// 25, 6.25 and 1.5625 % takes 30 steps.
struct Schedule {
  std::vector<double> densities;
  std::vector<std::int64_t> steps;
};

Schedule schedule_of(const DgcSettings& options) {
  const auto parts = std::count_if(kWarmUpDensities.begin(), kWarmUpDensities.end(),
                                   [&](double d) { return d > options.density; });
  Schedule schedule;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t steps = (i + 1) * options.warm_up / parts - i * options.warm_up / parts;
    if (steps == 0) continue;  // a warm-up shorter than its parts
    schedule.densities.push_back(kWarmUpDensities[to_index(i)]);
    schedule.steps.push_back(steps);
  }
  schedule.densities.push_back(options.density);
  return schedule;
}

/// `clip` is a norm of the sum over ranks. A rank sees only its own gradient, which has about 1 /
/// sqrt(ranks) of that norm if ranks' gradients are independent.
float clip_scale(const Input& input, const std::optional<double>& clip) {
  if (!clip) return 1;
  Moments moments;
  moments.add(input.gradient);
  const double norm = moments.norm();
  const double most = *clip / std::sqrt(input.ranks);
  return norm > most ? static_cast<float>(most / norm) : 1.0f;
}

/// A threshold from a sample of |r|, one of every `stride` elements from a random start. It is the
/// magnitude that the density's share of the sample reaches. Example: density=0.001 and 1,000,000
/// elements. The sample has 10,000 of them, and the answer is the tenth largest.
float sampled_threshold(std::span<const float> r, double density, std::uint64_t key,
                        std::vector<float>& sample) {
  const auto stride = to_index(dgc_stride(density, static_cast<std::int64_t>(r.size())));
  sample.clear();
  for (std::size_t i = random_below(key, 0, stride); i < r.size(); i += stride)
    sample.push_back(r[i]);
  const auto k = static_cast<std::size_t>(std::ceil(density * static_cast<double>(sample.size())));
  return std::bit_cast<float>(cut_of_largest(sample, k).bits);
}

/// Picks all that reach the threshold, which is lowered while it lets much less than the target
/// pass. Example: the target is 1,000 and 700 pass. The threshold is multiplied by .8, then 950
/// pass, and that is enough. Zeros are not worth sending.
void select_about(std::span<const float> r, std::size_t target, float threshold, Selection& sent) {
  for (int pass = 0; pass < kDgcMostPasses; ++pass) {
    const std::uint32_t least = std::max(1u, magnitude_bits(threshold));
    sent.clear();
    select(r, least, 0, sent);
    const auto selected = static_cast<std::int64_t>(sent.size());
    if (is_enough_for_dgc(selected, static_cast<std::int64_t>(target)) || least == 1) return;
    threshold *= kDgcLowered;
  }
}

std::vector<Round> dgc_rounds(const Shape& shape, double density) {
  if (shape.rows < 2 || shape.columns() < 2) return {};
  return one_round_if_smaller(shape, gathered_entries(dgc_most_entries(density, shape.elements),
                                                      entries_of(density, shape.elements)));
}

DgcSettings read_dgc(doc::OptionReader& options) {
  DgcSettings settings;
  settings.density = read_density(options);
  settings.momentum = read_momentum(options, "momentum", settings.momentum);
  settings.nesterov = options.choice("nesterov", {"no", "yes"}) == 1;
  settings.clip = options.number("clip");
  if (settings.clip && !(*settings.clip > 0)) options.refuse("clip", "a norm above 0");
  settings.warm_up = read_warm_up(options);
  return settings;
}

/// A matrix that pays in steady steps pays in the warm-up's too: 4 + 8 ceil(n / 4) < 4 n from 4
/// elements on. So its momentum is not left out in any step. u and r are remembered.
std::unique_ptr<const Compressor> make_dgc(doc::OptionReader& options) {
  const DgcSettings settings = read_dgc(options);
  const DenseMomentum dense{static_cast<float>(settings.momentum), 1, settings.nesterov};
  const Schedule schedule = schedule_of(settings);
  Phases phases;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i)
    phases.warm_up.push_back({fmt::format("density={}", schedule.densities[i]), schedule.steps[i]});
  return built_in(
      {.rounds =
           [=, densities = schedule.densities](const Shape& shape, int phase) {
             std::vector<Round> steady = dgc_rounds(shape, settings.density);
             if (phase < 0 || steady.empty()) return steady;
             return dgc_rounds(shape, densities.at(to_index(phase)));
           },
       .choice =
           CodecWith<DgcCodec, DgcSettings, std::vector<double>>{{settings, schedule.densities}},
       .residual = Residual::own,
       .phases = phases,
       .momentum = settings.momentum > 0 ? Momentum::own : Momentum::optimizers,
       .of_dense = CodecWith<DenseMomentumCodec, DenseMomentum>{{dense}},
       .remembered_bytes = [](const Shape& shape) { return 2 * 4 * shape.elements; }});
}

}  // namespace

// Five streams of memory and little else: what the compiler makes of it keeps up.
void HostOps::accumulate(const Sending& tensor, KeptValues& kept_u, KeptValues& kept_r,
                         const DgcSettings& settings) {
  const float m = static_cast<float>(settings.momentum);
  const bool nesterov = settings.nesterov;  // the compiler makes a loop for each
  const float scale = clip_scale(tensor, settings.clip);
  const float* g = tensor.gradient.data();
  const float* u = kept_u.now().data();
  const float* r = kept_r.now().data();
  float* next_u = kept_u.next().data();
  float* next_r = kept_r.next().data();
  const std::size_t n = tensor.elements();
  for (std::size_t i = 0; i < n; ++i) {
    const float step = scale * g[i];
    next_u[i] = nesterov ? m * (u[i] + step) : m * u[i] + step;
    const float sum = r[i] + next_u[i];
    next_r[i] = nesterov ? sum + step : sum;
  }
}

HostOps::Chosen HostOps::choose_by_sample(const Sending& tensor, Picking& room,
                                          const EntryFormat& format, KeptValues& kept) {
  const std::vector<float>& r = kept.next();
  const std::size_t target = to_index(format.most_of(static_cast<std::int64_t>(r.size())));
  const std::uint64_t key = tensor.keys.own;
  select_about(r, target, sampled_threshold(r, format.density, key, room.sample), room.sent);
  if (room.sent.size() > target) room.sent.keep(cut_of_largest(room.sent.values(), target));
  return room;
}

void HostOps::clear(const Chosen& chosen, KeptValues& kept) {
  clear_sent(chosen.sent, kept.next());
}

void HostOps::add_momentum(const Arriving& tensor, KeptValues& kept, const DenseMomentum& rule) {
  const std::span<float> mean = tensor.mean;
  const float* u = kept.now().data();
  float* next = kept.next().data();
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const float g = mean[i];
    next[i] = rule.nesterov ? rule.keep * (u[i] + g) : rule.keep * u[i] + rule.take * g;
    mean[i] = rule.nesterov ? next[i] + g : next[i];
  }
}

std::int64_t dgc_most_entries(double density, std::int64_t elements) {
  return static_cast<std::int64_t>(std::ceil(density * static_cast<double>(elements)));
}

std::int64_t dgc_stride(double density, std::int64_t elements) {
  const auto n = static_cast<double>(elements);
  return static_cast<std::int64_t>(n / std::min(n, std::max(0.01 * n, 2 / density)));
}

CompressorLine compressor_dgc() {
  return {"dgc", make_dgc,
          "Momentum and what is not yet sent, kept by each rank: dgc(density=0.01, momentum=0.9, "
          "nesterov=no|yes, clip=, warmup=0).",
          "Lin et al. 2018 (arXiv 1712.01887)"};
}

}  // namespace linerate::compress
