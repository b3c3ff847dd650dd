// randomk: k elements at places that all ranks draw alike, so that values alone travel and add up.
// Stich et al. 2018 (arXiv 1809.07599); unbiased by n/k (Wangni et al. 2018, arXiv 1710.09854) if
// no residual is kept. Scaled with a residual it would diverge: a sent entry's residual would be
// -(n/k - 1) v.
// v[n] f32 -> payload of k f32, summed by ranks; k = max(1, floor(density n)).
#include <numeric>

#include "linerate/compress/distinct_indices.hpp"
#include "linerate/compress/kernel/select.hpp"
#include "linerate/compress/method/density.hpp"
#include "linerate/compress/method/settings.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

class RandomKCodec : public Codec {
 public:
  RandomKCodec(std::int64_t elements, std::int64_t k, Places places)
      : elements_(static_cast<std::uint64_t>(elements)), places_(places), indices_(to_index(k)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    draw(input.keys.shared);
    add_residual(input);
    const std::span<const float> v = corrected(input);
    const float scale = input.residual.empty() ? unbiased_scale() : 1.0f;
    for (std::size_t j = 0; j < indices_.size(); ++j)
      write_at(payload, 4 * j, v[indices_[j]] * scale + 0.0f);
    if (!input.residual.empty())
      for (const std::uint32_t i : indices_) input.residual[i] = 0;
    return 4 * indices_.size();
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_sum(arrived, 4 * indices_.size(), "randomk");
    const float share = 1.0f / static_cast<float>(arrived.ranks);
    std::fill(mean.begin(), mean.end(), 0.0f);
    for (std::size_t j = 0; j < indices_.size(); ++j)
      mean[indices_[j]] = read_at<float>(arrived.payloads[0], 4 * j) * share;
  }

 private:
  float unbiased_scale() const {
    return static_cast<float>(static_cast<double>(elements_) /
                              static_cast<double>(indices_.size()));
  }

  void draw(std::uint64_t key) {
    const DistinctIndices scattered(key, elements_);
    const std::uint64_t start = random_below(key, 0, elements_);
    for (std::uint64_t j = 0; j < indices_.size(); ++j)
      indices_[j] = static_cast<std::uint32_t>(places_ == Places::block ? (start + j) % elements_
                                                                        : scattered.at(j));
  }

  std::uint64_t elements_;
  Places places_;
  std::vector<std::uint32_t> indices_;  // of the step: drawn by encode(), used again by decode()
};

class RandomK : public Compressor {
 public:
  explicit RandomK(const RandomKSettings& settings)
      : density_(settings.density), places_(settings.places) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(
        shape, {Combine::sum, DType::f32, 4 * entries_of(density_, shape.elements)});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<RandomKCodec>(shape.elements, entries_of(density_, shape.elements),
                                          places_);
  }
  Residual residual() const override { return Residual::optional; }
  bool is_unbiased() const override { return true; }  // if no residual is kept

 private:
  double density_;
  Places places_;
};

}  // namespace

RandomKSettings read_randomk(doc::OptionReader& options) {
  const double density = read_density(options);
  return {density, static_cast<Places>(options.choice("places", {"scattered", "block"}))};
}

CompressorLine compressor_randomk() {
  return {"randomk",
          [](doc::OptionReader& options) -> std::unique_ptr<const Compressor> {
            return std::make_unique<RandomK>(read_randomk(options));
          },
          "Random elements, the same on all ranks: randomk(density=0.01, places=scattered|block).",
          "Stich et al. 2018 (arXiv 1809.07599)"};
}

}  // namespace linerate::compress
