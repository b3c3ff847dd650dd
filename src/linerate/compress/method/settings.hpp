// The options of methods, read in one place for every implementation: the kernels here, and the
// tensor operations of torch_codecs. Each read function is in its method's file. Formats that
// methods share are in grid_format.hpp, power_format.hpp and sign_format.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/compress/tail_fit.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

struct OneBitAdamSettings {
  double beta = 0.9;
  std::int64_t freeze_step = 0;  // dense steps before, of the phase 0
};

enum class Places : std::uint8_t {
  scattered,
  block,  // one random start and what follows it, modulo n: kinder to memory, the same volume
};
struct RandomKSettings {
  double density = 0.01;
  Places places = Places::scattered;
};

enum class ThresholdForm : std::uint8_t { value, two_bit };
struct ThresholdSettings {
  ThresholdForm form = ThresholdForm::value;
  std::optional<float> tau = std::nullopt;  // absent: the density's
  double density = 0.01;
};
/// In threshold's payload, in place of the count: all values follow. No tensor has so many entries.
inline constexpr std::uint32_t kAllValues = 0xffffffff;
/// The exponent of threshold's rule tau <- tau (selected / k)^this. On the tail of a Gaussian one
/// step goes about the whole way to k, on heavier tails part of it. Example: k = 1,000 and 1,500
/// were selected, so tau grows by 4 %.
inline constexpr double kTauFollows = 0.1;
/// The most entries with which threshold's payload is smaller than the dense tensor with its flag.
constexpr std::int64_t threshold_most_entries(std::int64_t elements) {
  return elements > 0 ? (elements - 1) / 2 : 0;
}

struct SidcoSettings {
  double density = 0.01;
  TailDistribution fit = TailDistribution::exponential;
  int stages = 0;  // 0: adjusted by their results (StageControl)
};

struct DgcSettings {
  double density = 0.01;  // of a matrix's elements
  double momentum = 0.9;
  bool nesterov = false;
  /// Scales a rank's gradient of a tensor to a norm of at most clip / sqrt(ranks).
  std::optional<double> clip = std::nullopt;
  std::int64_t warm_up = 0;  // steps
};
/// The densities of dgc's phases, the steady one last.
std::vector<double> dgc_densities(const DgcSettings& settings);
/// dgc's K = ceil(density n).
std::int64_t dgc_most_entries(double density, std::int64_t elements);
/// The stride of dgc's sample: it takes one of every so many elements. The sample has at least 1 %
/// of them, and at least 2 / density, so that two of it are among the largest.
std::int64_t dgc_stride(double density, std::int64_t elements);
/// If dgc's threshold lets less than four fifths of K pass, it is lowered by kDgcLowered. There are
/// at most kDgcMostPasses passes in all.
inline constexpr int kDgcMostPasses = 10;
inline constexpr float kDgcLowered = 0.8f;
constexpr bool is_enough_for_dgc(std::int64_t selected, std::int64_t target) {
  return 5 * selected >= 4 * target;
}

struct MsTopKSettings {
  double density = 0.01;
  int halvings = 20;
};

}  // namespace linerate::compress
