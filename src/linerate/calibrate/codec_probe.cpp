#include "linerate/calibrate/codec_probe.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/calibrate/relative_line.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

/// One tensor of one rank, step after step.
class Steps {
 public:
  Steps(const compress::Compressor& compressor, const compress::Shape& shape)
      : rounds_(compressor.rounds(shape)),
        codec_(compressor.codec(shape)),
        gradient_(compress::noise(shape.elements, 1)),
        mean_(gradient_.size()) {
    if (compress::keeps_residual(compressor)) residual_.assign(gradient_.size(), 0);
    for (const compress::Round& round : rounds_)
      payloads_.emplace_back(static_cast<std::size_t>(round.bytes));
  }

  struct Times {
    double encode_s = 0, decode_s = 0;
  };
  Times step() {
    Times times;
    ++number_;
    for (std::size_t r = 0; r < rounds_.size(); ++r) {
      const std::int64_t begin = steady_ns();
      const std::size_t sent = codec_->encode(
          static_cast<int>(r),
          {gradient_, residual_, {random_key(1, number_), random_key(2, number_)}, 1},
          payloads_[r]);
      const std::int64_t encoded = steady_ns();
      const std::span<const std::byte> payload(payloads_[r].data(), sent);
      const bool is_last = r + 1 == rounds_.size();
      codec_->decode(static_cast<int>(r), {{&payload, 1}, 1},
                     is_last ? std::span<float>(mean_) : std::span<float>());
      times.encode_s += static_cast<double>(encoded - begin) * 1e-9;
      times.decode_s += static_cast<double>(steady_ns() - encoded) * 1e-9;
    }
    return times;
  }

 private:
  std::vector<compress::Round> rounds_;
  std::unique_ptr<compress::Codec> codec_;
  std::vector<float> gradient_, residual_, mean_;
  std::vector<std::vector<std::byte>> payloads_;
  std::uint64_t number_ = 0;
};

struct Medians {
  double encode_s = 0, decode_s = 0;
};

Medians medians_of(Steps& steps, Seconds budget) {
  constexpr std::size_t kMost = 201;
  std::vector<double> encode, decode;
  steps.step();  // the first one touches memory and starts factors
  const std::int64_t begin = steady_ns();
  do {
    const Steps::Times times = steps.step();
    encode.push_back(times.encode_s);
    decode.push_back(times.decode_s);
  } while (encode.size() < kMost && static_cast<double>(steady_ns() - begin) * 1e-9 < budget.value);
  return {median(encode), median(decode)};
}

struct Cost {
  double fixed_s = 0, bytes_per_s = 0;
};

Cost cost_of(const std::vector<doc::CostSample>& samples) {
  const Line line = RelativeLines(samples).fit(0, samples.size());
  return {line.alpha_s, line.beta_s_per_byte > 0 ? 1 / line.beta_s_per_byte : 0};
}

}  // namespace

doc::CodecCost probe_codec(const doc::Component& component, const CodecProbeOptions& options) {
  const auto compressor = compress::make_compressor(component);
  std::vector<doc::CostSample> encode, decode;
  for (const std::int64_t n : options.elements) {
    const auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
    const compress::Shape shape{n / rows * rows, rows};
    if (compressor->rounds(shape).empty()) continue;
    Steps steps(*compressor, shape);
    const Medians medians = medians_of(steps, options.budget_per_size);
    const auto bytes = static_cast<double>(shape.elements * size_of(DType::f32));
    encode.push_back({.bytes = bytes, .seconds = std::max(medians.encode_s, 1e-9)});
    decode.push_back({.bytes = bytes, .seconds = std::max(medians.decode_s, 1e-9)});
  }
  if (encode.empty())
    throw UsageError("codec " + doc::to_text(component) + ": it compresses none of the sizes");
  const Cost in = cost_of(encode), out = cost_of(decode);
  return {doc::to_text(component), in.fixed_s, in.bytes_per_s, out.fixed_s, out.bytes_per_s};
}

doc::Component parse_compressor(const std::string& text) {
  doc::Component component = doc::parse_component(text);
  compress::make_compressor(component);
  return component;
}

std::vector<doc::Component> all_compressors() {
  std::vector<doc::Component> all;
  for (const std::string& name : compress::compressors().names()) all.push_back({name, {}});
  return all;
}

void add_codecs(doc::Cluster& cluster, const std::vector<doc::Component>& compressors) {
  for (const doc::Component& component : compressors) {
    const doc::CodecCost cost = probe_codec(component);
    std::erase_if(cluster.codecs, [&](const doc::CodecCost& c) { return c.name == cost.name; });
    cluster.codecs.push_back(cost);
  }
}

}  // namespace linerate::calibrate
