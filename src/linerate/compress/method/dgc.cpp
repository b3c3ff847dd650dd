// dgc: Lin et al. 2018, Deep Gradient Compression (ICLR, arXiv 1712.01887). What is not sent is
// kept as momentum u and its accumulation r, in place of a residual; the optimizer applies the
// decoded mean without momentum of its own.
//   u <- m u + g, r <- r + u           (Nesterov: u <- m (u + g), r <- r + u + g)
//   r[n] f32 -> u32 count, f32 values, u32 indices: |r| above a threshold that a sample gives, at
//   most K = ceil(density n); then u and r of what is sent become 0 (momentum factor masking).
// Matrices alone: vectors travel dense.
#include "linerate/compress/method/dgc.hpp"

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
#include "linerate/compress/state.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

constexpr std::string_view kName = "dgc";

std::int64_t most_entries(double density, std::int64_t elements) {
  return static_cast<std::int64_t>(std::ceil(density * static_cast<double>(elements)));
}

class DgcCodec : public Codec {
 public:
  DgcCodec(const Shape& shape, DgcOptions options)
      : shape_(shape),
        options_(std::move(options)),
        capacity_(static_cast<std::size_t>(most_entries(options_.density, shape.elements))),
        momentum_(static_cast<std::size_t>(shape.elements)),
        accumulated_(momentum_.size()) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    const KeepDenormals keep;
    accumulate(input);
    const double density = density_of(steps_++);
    const auto target =
        std::min(capacity_, static_cast<std::size_t>(most_entries(density, shape_.elements)));
    select_about(target, sampled_threshold(density, input.keys.own));
    if (sent_.size() > target) sent_.keep(cut_of_largest(sent_.values(), target));
    clear_sent(sent_, momentum_);
    clear_sent(sent_, accumulated_);
    return write_counted_entries(sent_, payload);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    const KeepDenormals keep;
    decode_counted_entries(arrived, capacity_, mean, kName);
  }

  std::vector<std::byte> save() const override {
    StateWriter state(kName, shape_);
    state.put(steps_);
    state.put(std::span<const float>(momentum_));
    state.put(std::span<const float>(accumulated_));
    return state.take();
  }
  void load(std::span<const std::byte> saved) override {
    StateReader state(saved, kName, shape_);
    const auto steps = state.get<std::int64_t>();
    std::vector<float> momentum(momentum_.size()), accumulated(accumulated_.size());
    state.get(std::span<float>(momentum));
    state.get(std::span<float>(accumulated));
    state.finish();
    steps_ = steps;
    momentum_ = std::move(momentum);
    accumulated_ = std::move(accumulated);
  }

 private:
  double density_of(std::int64_t step) const {
    if (!options_.density_of_step) return options_.density;
    return std::min(options_.density_of_step(step), options_.density);
  }

  float clip_scale(const Input& input) const {
    if (!options_.clip) return 1;
    Moments moments;
    moments.add(input.gradient);
    const double norm = moments.norm();
    const double most = *options_.clip / std::sqrt(input.ranks);
    return norm > most ? static_cast<float>(most / norm) : 1.0f;
  }

  // Five streams of memory and little else: what the compiler makes of it keeps up.
  void accumulate(const Input& input) {
    const float scale = clip_scale(input), m = static_cast<float>(options_.momentum);
    const float* g = input.gradient.data();
    float* u = momentum_.data();
    float* r = accumulated_.data();
    const std::size_t n = momentum_.size();
    if (options_.nesterov) {
      for (std::size_t i = 0; i < n; ++i) {
        const float step = scale * g[i];
        u[i] = m * (u[i] + step);
        r[i] = r[i] + u[i] + step;
      }
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      u[i] = m * u[i] + scale * g[i];
      r[i] += u[i];
    }
  }

  /// Of a share of |r|, one of every stride from a random start: the magnitude that the density's
  /// share of them reaches.
  float sampled_threshold(double density, std::uint64_t key) const {
    const auto n = static_cast<double>(accumulated_.size());
    const double wanted = std::min(n, std::max(0.01 * n, 2 / density));
    const auto stride = static_cast<std::size_t>(n / wanted);
    std::vector<float> sample;
    for (std::size_t i = random_below(key, 0, stride); i < accumulated_.size(); i += stride)
      sample.push_back(accumulated_[i]);
    const auto k =
        static_cast<std::size_t>(std::ceil(density * static_cast<double>(sample.size())));
    return std::bit_cast<float>(cut_of_largest(sample, k).bits);
  }

  /// All that reach the threshold; lowered while that is much less than the target. Zeros are not
  /// worth sending.
  void select_about(std::size_t target, float threshold) {
    constexpr int kMostPasses = 10;
    for (int pass = 0; pass < kMostPasses; ++pass) {
      const std::uint32_t least = std::max(1u, magnitude_bits(threshold));
      sent_.clear();
      select(accumulated_, least, 0, sent_);
      if (5 * sent_.size() >= 4 * target || least == 1) return;
      threshold *= 0.8f;
    }
  }

  Shape shape_;
  DgcOptions options_;
  std::size_t capacity_;
  std::int64_t steps_ = 0;
  std::vector<float> momentum_, accumulated_;  // u and r, in gradient units
  Selection sent_;
};

class Dgc : public Compressor {
 public:
  explicit Dgc(DgcOptions options) : options_(std::move(options)) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    if (shape.rows < 2 || shape.columns() < 2) return {};
    const std::int64_t bytes =
        kCountBytes + kEntryBytes * most_entries(options_.density, shape.elements);
    return one_round_if_smaller(shape, {Combine::gather, DType::u8, bytes, true});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<DgcCodec>(shape, options_);
  }
  Momentum momentum() const override { return Momentum::own; }
  Residual residual() const override { return Residual::own; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return 2 * 4 * shape.elements;  // u and r
  }

 private:
  DgcOptions options_;
};

std::unique_ptr<const Compressor> make(doc::OptionReader& options) {
  DgcOptions dgc_options;
  dgc_options.density = read_density(options);
  dgc_options.momentum = options.number("momentum").value_or(0.9);
  if (!(dgc_options.momentum >= 0 && dgc_options.momentum < 1))
    options.fail("momentum", fmt::format("expected a number of at least 0, below 1, found {}",
                                         dgc_options.momentum));
  dgc_options.nesterov = options.choice("nesterov", {"no", "yes"}) == 1;
  dgc_options.clip = options.number("clip");
  if (dgc_options.clip && !(*dgc_options.clip > 0))
    options.fail("clip", fmt::format("expected a norm above 0, found {}", *dgc_options.clip));
  return dgc(dgc_options);
}

}  // namespace

std::unique_ptr<const Compressor> dgc(const DgcOptions& options) {
  return std::make_unique<Dgc>(options);
}

double dgc_warm_up(double density, std::int64_t epoch, std::int64_t epochs) {
  if (epoch >= epochs) return density;
  return std::pow(density, static_cast<double>(epoch + 1) / static_cast<double>(epochs + 1));
}

CompressorLine compressor_dgc() {
  return {"dgc", make,
          "Momentum and what is not yet sent, kept by each rank: dgc(density=0.01, momentum=0.9, "
          "nesterov=no|yes, clip=).",
          "Lin et al. 2018 (arXiv 1712.01887)"};
}

}  // namespace linerate::compress
