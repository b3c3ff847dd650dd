// A codec is timed in the way training calls it: CodedTensor::begin_step, encode and decode of each
// round, keep. Four sizes give samples, and a line through them gives a time for each tensor and a
// rate.
#include "linerate/calibrate/codec_probe.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "linerate/calibrate/relative_line.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::calibrate {
namespace {

/// One tensor of one rank, step after step, as training runs it. That includes the search for
/// infinities and copies for a step that is undone.
class Steps {
 public:
  Steps(const compress::Compressor& compressor, const compress::Shape& shape,
        std::span<const float> noise)
      : rounds_(compressor.rounds(shape)),
        tensor_("probe", shape, {}),
        gradient_(noise.begin(), noise.begin() + shape.elements),
        mean_(gradient_.size()) {
    tensor_.use({"probe", &compressor});
    for (const compress::Round& round : rounds_) payloads_.emplace_back(to_index(round.bytes));
  }

  struct Times {
    double encode_s = 0, decode_s = 0;
  };
  Times step() {
    Times times;
    std::int64_t begin = steady_ns();
    LINERATE_CHECK(compress::all_finite(gradient_), "noise that is not finite");
    tensor_.begin_step(1, ++number_, 0, gradient_);
    for (std::size_t r = 0; r < rounds_.size(); ++r) {
      const auto round = static_cast<int>(r);
      const std::size_t sent = tensor_.encode(round, gradient_, 1, -1, payloads_[r]);
      const std::int64_t encoded = steady_ns();
      const std::span<const std::byte> payload(payloads_[r].data(), sent);
      const bool is_last = r + 1 == rounds_.size();
      tensor_.decode(round, {{&payload, 1}, 1},
                     is_last ? std::span<float>(mean_) : std::span<float>());
      times.encode_s += static_cast<double>(encoded - begin) * 1e-9;
      begin = steady_ns();
      times.decode_s += static_cast<double>(begin - encoded) * 1e-9;
    }
    tensor_.keep();
    return times;
  }

 private:
  std::vector<compress::Round> rounds_;
  compress::CodedTensor tensor_;
  std::vector<float> gradient_, mean_;
  std::vector<std::vector<std::byte>> payloads_;
  std::int64_t number_ = 0;
};

/// Tensors in turn, so many that none is still in a cache at its next turn: in training, backward
/// and the other tensors come between.
class TensorsInTurn {
 public:
  TensorsInTurn(const compress::Compressor& compressor, const compress::Shape& shape,
                std::span<const float> noise) {
    constexpr std::int64_t kTogether = 96 << 20;  // bytes
    const std::int64_t each = 3 * size_of(DType::f32) * shape.elements;
    const std::int64_t count = std::clamp<std::int64_t>(kTogether / each, 1, 256);
    for (std::int64_t i = 0; i < count; ++i)
      steps_.push_back(std::make_unique<Steps>(compressor, shape, noise));
    for (const auto& steps : steps_) steps->step();  // touches memory, starts factors
  }
  Steps::Times step() { return steps_[next_++ % steps_.size()]->step(); }

 private:
  std::vector<std::unique_ptr<Steps>> steps_;
  std::size_t next_ = 0;
};

struct Medians {
  double encode_s = 0, decode_s = 0;
};

Medians medians_of(TensorsInTurn& steps, Duration budget) {
  constexpr std::size_t kMost = 201;
  std::vector<double> encode, decode;
  const std::int64_t begin = steady_ns();
  do {
    const Steps::Times times = steps.step();
    encode.push_back(times.encode_s);
    decode.push_back(times.decode_s);
  } while (encode.size() < kMost &&
           static_cast<double>(steady_ns() - begin) * 1e-9 < budget.count());
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

std::vector<compress::Shape> probed_shapes(const compress::Compressor& compressor,
                                           const std::vector<std::int64_t>& elements) {
  std::vector<compress::Shape> shapes;
  for (const std::int64_t n : elements) {
    const auto rows = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
    const compress::Shape shape{n / rows * rows, rows};
    if (!compressor.rounds(shape).empty()) shapes.push_back(shape);
  }
  return shapes;
}

doc::CodecCost fit_codec(const CodecSamples& samples) {
  if (samples.encode.empty())
    throw UsageError("codec " + samples.name + ": it compresses none of the sizes");
  const Cost in = cost_of(samples.encode), out = cost_of(samples.decode);
  doc::CodecCost cost{samples.name, 0, in.bytes_per_s, 0, out.bytes_per_s};
  cost.encode_tensor_s = in.fixed_s, cost.decode_tensor_s = out.fixed_s;
  return cost;
}

doc::CodecCost probe_codec(const doc::Component& component, const CodecProbeOptions& options) {
  const auto compressor = compress::make_compressor(component);
  const std::vector<float> noise =
      compress::noise(*std::max_element(options.elements.begin(), options.elements.end()), 1);
  CodecSamples samples{doc::to_text(component), {}, {}};
  for (const compress::Shape& shape : probed_shapes(*compressor, options.elements)) {
    TensorsInTurn steps(*compressor, shape, noise);
    const Medians medians = medians_of(steps, options.budget_per_size);
    const auto bytes = static_cast<double>(shape.elements * size_of(DType::f32));
    samples.encode.push_back({.bytes = bytes, .seconds = std::max(medians.encode_s, 1e-9)});
    samples.decode.push_back({.bytes = bytes, .seconds = std::max(medians.decode_s, 1e-9)});
  }
  return fit_codec(samples);
}

doc::Component parse_compressor(const std::string& text) {
  doc::Component component = doc::parse_component(text);
  static_cast<void>(compress::make_compressor(component));
  return component;
}

std::vector<doc::Component> all_compressors() {
  std::vector<doc::Component> all;
  for (const std::string& name : compress::compressors().names()) all.push_back({name, {}});
  return all;
}

void add_codec(doc::Cluster& cluster, const doc::CodecCost& cost) {
  std::erase_if(cluster.codecs, [&](const doc::CodecCost& c) { return c.name == cost.name; });
  cluster.codecs.push_back(cost);
}

void add_codecs(doc::Cluster& cluster, const std::vector<doc::Component>& compressors) {
  for (const doc::Component& component : compressors) add_codec(cluster, probe_codec(component));
}

}  // namespace linerate::calibrate
