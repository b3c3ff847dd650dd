// Deep gradient compression as a class, for callers that set what options of text cannot: a density
// that changes over the training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

struct DgcOptions {
  double density = 0.01;  // of a matrix's elements; at most what `density_of_step` gives
  double momentum = 0.9;
  bool nesterov = false;
  /// Scales a rank's gradient of a tensor to a norm of at most clip / sqrt(ranks).
  std::optional<double> clip = std::nullopt;
  /// Warm-up: the density of a codec's encode number 0, 1, 2 ..., the same on all ranks and at most
  /// `density`, which sizes the payloads; empty: always `density`. See dgc_warm_up().
  std::function<double(std::int64_t)> density_of_step = {};
};

std::unique_ptr<const Compressor> dgc(const DgcOptions& options);

/// The rule of the authors' code: density^((epoch + 1) / (epochs + 1)) in warm-up epoch 0, 1, ...
/// of `epochs`, `density` from then on.
double dgc_warm_up(double density, std::int64_t epoch, std::int64_t epochs);

}  // namespace linerate::compress
