// What compressors cost on this machine: encode and decode of one tensor, on the calling thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::calibrate {

struct CodecProbeOptions {
  std::vector<std::int64_t> elements = {1 << 12, 1 << 16, 1 << 20, 1 << 23};  // of square matrices
  Duration budget_per_size{0.1};                                              // at least one call
};

/// Of square matrices, those that the compressor encodes.
std::vector<compress::Shape> probed_shapes(const compress::Compressor& compressor,
                                           const std::vector<std::int64_t>& elements);

/// What encoding and decoding took, by bytes of the dense f32 tensor, ascending.
struct CodecSamples {
  std::string name;  // the compressor's text
  std::vector<doc::CostSample> encode, decode;
};
/// Times that each tensor adds and rates, fitted with relative weights. Throws UsageError if there
/// are no samples.
doc::CodecCost fit_codec(const CodecSamples& samples);

/// Measures all rounds of an encode, and the decoding of one rank's payload. Encoding is as in
/// training: with the search for infinities, the residual, and copies for an undone step. Tensors
/// come from memory and not from caches.
///
/// The cost is a time for each tensor and a rate in bytes of the dense f32 tensor. It is fitted
/// with relative weights to medians over `elements`. Its name is the component's text, as Plan and
/// Cluster find it: topk(density=0.01). Throws UsageError for compressors that do not exist.
doc::CodecCost probe_codec(const doc::Component& compressor, const CodecProbeOptions& options = {});

/// "powersgd(rank=4)". Throws UsageError for what is no compressor.
doc::Component parse_compressor(const std::string& text);
/// Every compressor of the registry, with its own options.
std::vector<doc::Component> all_compressors();
/// In place of one of its name.
void add_codec(doc::Cluster& cluster, const doc::CodecCost& cost);
/// Probes each and adds it.
void add_codecs(doc::Cluster& cluster, const std::vector<doc::Component>& compressors);

// Times of K-FAC's work, measured or from a table, become what it costs.

/// Inversions: the median of each dimension. Factors and directions: rates, all >= 0, with the
/// least squared relative error; free without samples.
doc::SecondOrderCost fit_second_order(const doc::SecondOrderSamples& samples);

/// Reads lines "what,DIM,SECONDS". `inv` is one inversion of a symmetric DIM x DIM matrix. `mm` is
/// one product of two such matrices, by which factors and directions are priced too. `chol` is a
/// part of inv, and left out. Throws InputError.
doc::SecondOrderSamples read_second_order_table(const std::filesystem::path& path,
                                                std::vector<std::string>* notes = nullptr);

}  // namespace linerate::calibrate
