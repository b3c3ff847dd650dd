// randomk: k elements at places that all ranks draw alike, so that values alone travel and add up.
// Stich et al. 2018 (arXiv 1809.07599).
//   v[n] f32 -> payload of k f32, summed by ranks; k = max(1, floor(density n)).
//
// Without a residual values are multiplied by n/k, which makes them unbiased (Wangni et al. 2018,
// arXiv 1710.09854). Example: of 300 elements 3 are sent, each multiplied by 100, because each
// element is sent in one step of 100. With a residual values are not scaled. Else it would diverge,
// because a sent entry would leave -(n/k - 1) v.
#include <algorithm>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

/// Unbiased if no residual is kept.
std::unique_ptr<const Compressor> make_randomk(doc::OptionReader& options) {
  const double density = read_density(options);
  const auto places = static_cast<Places>(options.choice("places", {"scattered", "block"}));
  return built_in({.rounds = one_round([density](std::int64_t n) {
                     return Round{Combine::sum, DType::f32, 4 * entries_of(density, n)};
                   }),
                   .choice = CodecWith<RandomKCodec, double, Places>{{density, places}},
                   .residual = Residual::optional,
                   .is_unbiased = true});
}

}  // namespace

void HostOps::send_drawn(const Sending& tensor, Drawn& indices, double density, Places places) {
  const auto n = static_cast<std::int64_t>(tensor.elements());
  indices.resize(to_index(entries_of(density, n)));
  draw_places(tensor.keys.shared, to_index(n), places, 0, std::span(indices));
  add_residual(tensor);
  const std::span<const float> v = corrected(tensor);
  const double unbiased = static_cast<double>(n) / static_cast<double>(indices.size());
  const float scale = tensor.residual.empty() ? static_cast<float>(unbiased) : 1.0f;
  for (std::size_t j = 0; j < indices.size(); ++j)
    write_at(tensor.payload, 4 * j, v[indices[j]] * scale + 0.0f);
  if (!tensor.residual.empty())
    for (const std::uint32_t i : indices) tensor.residual[i] = 0;
  tensor.sent = 4 * indices.size();
}

void HostOps::average_drawn(const Arriving& tensor, Drawn& indices, double) {
  const std::span<float> mean = tensor.mean;
  check_sum(tensor, 4 * indices.size(), "randomk");
  const float share = 1.0f / static_cast<float>(tensor.ranks);
  std::fill(mean.begin(), mean.end(), 0.0f);
  for (std::size_t j = 0; j < indices.size(); ++j)
    mean[indices[j]] = read_at<float>(tensor.payloads[0], 4 * j) * share;
}

CompressorLine compressor_randomk() {
  return {"randomk", make_randomk,
          "Random elements, the same on all ranks: randomk(density=0.01, places=scattered|block).",
          "Stich et al. 2018 (arXiv 1809.07599)"};
}

}  // namespace linerate::compress
