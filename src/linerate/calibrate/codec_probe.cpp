// A codec is timed in the way training calls it: CodedTensor::begin_step, encode and decode of each
// round, keep. Four sizes give samples, and a line through them gives a time for each tensor and a
// rate.
#include "linerate/calibrate/codec_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <span>

#include "linerate/calibrate/curve.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"

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

Steps::Times medians_of(TensorsInTurn& steps, Duration budget) {
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

Line line_of(const std::vector<doc::CostSample>& samples) {
  return RelativeLines(samples).fit(0, samples.size());
}

/// 0: it takes no time.
double rate_of(double s_per_unit) { return s_per_unit > 0 ? 1 / s_per_unit : 0; }

// Costs of K-FAC's work. Inversions are looked up by dimension. Factors and directions are priced
// by rates: a fixed time a call, and times for each flop, input and element. Samples of different
// shapes tell the rates apart. Errors are relative, so small layers count as much as large ones.

/// Seconds of one call, of a flop, of an input, of an element.
using Rates = std::array<double, 4>;

Rates units_of(const doc::SecondOrderWork& work) {
  return {1, work.flops, work.inputs, work.elements};
}

/// Rates, all >= 0, with the least sum of ((rates units - seconds) / seconds)^2. Coordinate descent
/// finds them. Each step solves for one rate while the others stay, and stops at 0. The sum is
/// convex, so the steps lead to its minimum. `missing` is the share of each sample's time that the
/// rates leave.
Rates least_relative_error(const std::vector<doc::SecondOrderWork>& samples) {
  constexpr int kSweeps = 20000;
  Rates rates{};
  std::vector<Rates> shares;  // of a sample's seconds
  for (const doc::SecondOrderWork& s : samples) {
    shares.push_back(units_of(s));
    for (double& share : shares.back()) share /= s.seconds;
  }
  std::vector<double> missing(samples.size(), 1);
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t k = 0; k < rates.size(); ++k) {
      double along = 0, square = 0;
      for (std::size_t i = 0; i < shares.size(); ++i)
        along += missing[i] * shares[i][k], square += shares[i][k] * shares[i][k];
      if (square == 0) continue;
      const double step = std::max(along / square, -rates[k]);
      rates[k] += step;
      for (std::size_t i = 0; i < shares.size(); ++i) missing[i] -= step * shares[i][k];
    }
  return rates;
}

std::vector<doc::InverseSample> medians(const std::vector<doc::InverseSample>& samples) {
  std::map<std::int64_t, std::vector<double>> of_dim;
  for (const doc::InverseSample& s : samples) of_dim[s.dim].push_back(s.seconds);
  std::vector<doc::InverseSample> all;
  for (const auto& [dim, seconds] : of_dim) all.push_back({dim, median(seconds)});
  return all;
}

struct TableLine {
  std::string what;
  std::int64_t dim = 0;
  double seconds = 0;
};

TableLine table_line(const std::string& place, const std::string& text) {
  const std::vector<std::string> cells = split_outside_parentheses(text, ',');
  try {
    if (cells.size() == 3) {
      const TableLine line{lowered(trim(cells[0])), parse_integer(cells[1]),
                           parse_number(cells[2])};
      const bool known = line.what == "inv" || line.what == "chol" || line.what == "mm";
      if (known && line.dim > 0 && std::isfinite(line.seconds) && line.seconds > 0) return line;
    }
  } catch (const UsageError&) {  // no number
  }
  throw InputError(
      place, fmt::format("expected inv,DIM,SECONDS (or mm, chol), both above 0, found \"{}\"; "
                         "linerate calibrate --second-order without a file measures them",
                         text));
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
  const Line in = line_of(samples.encode), out = line_of(samples.decode);
  doc::CodecCost cost{samples.name, 0, rate_of(in.beta_s_per_byte), 0,
                      rate_of(out.beta_s_per_byte)};
  cost.encode_tensor_s = in.alpha_s, cost.decode_tensor_s = out.alpha_s;
  return cost;
}

doc::CodecCost probe_codec(const doc::Component& component, const CodecProbeOptions& options) {
  const auto compressor = compress::make_compressor(component);
  const std::vector<float> noise =
      compress::noise(*std::max_element(options.elements.begin(), options.elements.end()), 1);
  CodecSamples samples{doc::to_text(component), {}, {}};
  for (const compress::Shape& shape : probed_shapes(*compressor, options.elements)) {
    TensorsInTurn steps(*compressor, shape, noise);
    const Steps::Times medians = medians_of(steps, options.budget_per_size);
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

doc::SecondOrderCost fit_second_order(const doc::SecondOrderSamples& samples) {
  doc::SecondOrderCost cost;
  cost.inverses = medians(samples.inverses);
  cost.batches = samples.batches;
  const Rates factor = least_relative_error(samples.factors);
  cost.factor_fixed_s = factor[0], cost.factor_flops_per_s = rate_of(factor[1]);
  cost.factor_s_per_input = factor[2], cost.factor_s_per_element = factor[3];
  const Rates direction = least_relative_error(samples.directions);
  cost.precondition_fixed_s = direction[0];
  cost.precondition_flops_per_s = rate_of(direction[1]);
  return cost;
}

doc::SecondOrderSamples read_second_order_table(const std::filesystem::path& path,
                                                std::vector<std::string>* notes) {
  doc::SecondOrderSamples samples;
  const std::string text = read_file(path);
  std::size_t at = 0;
  for (int number = 1; at < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string content(trim(std::string_view(text).substr(at, end - at)));
    at = end + 1;
    if (content.empty() || content.starts_with('#')) continue;
    const TableLine line = table_line(fmt::format("{}:{}", path.string(), number), content);
    if (line.what == "inv") samples.inverses.push_back({line.dim, line.seconds});
    if (line.what != "mm") continue;
    const double flops = 2 * std::pow(static_cast<double>(line.dim), 3);
    for (auto* work : {&samples.factors, &samples.directions})
      work->push_back({.flops = flops, .seconds = line.seconds});
  }
  if (samples.inverses.empty())
    throw InputError(path.string(), "expected lines inv,DIM,SECONDS, found none");
  if (samples.factors.empty() && notes)
    notes->push_back(
        path.string() +
        ": no products (mm,DIM,SECONDS), so factors and directions count as taking no time");
  return samples;
}

}  // namespace linerate::calibrate
