// The compressors by name, as strategies name them: powersgd(rank=4). A user's own is one class and
// one line more.
#pragma once

#include <cstdint>
#include <memory>

#include "linerate/compress/codec.hpp"
#include "linerate/core/registry.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// Made from its options; the caller refuses what was not read.
using MakeCompressor = std::unique_ptr<const Compressor> (*)(doc::OptionReader& options);
/// A line of the registry. A compressor's file in method/ ends with one, `CompressorLine
/// compressor_<file>()`.
using CompressorLine = RegistryLine<MakeCompressor>;

/// The built-in ones, in the order of registry.cpp, then the user's own.
[[nodiscard]] const Registry<MakeCompressor>& compressors();
/// Adds a user's own. Before the first strategy is parsed, from one thread. Throws UsageError if
/// the name is taken or is no word.
void register_compressor(CompressorLine line);
/// "topk(density=0.01)", as a Plan's operation says it: without dense_below= it codes tensors of
/// every size. In a strategy's text the default is 4096. Throws UsageError that names what is
/// unknown or out of range.
[[nodiscard]] std::unique_ptr<const Compressor> make_compressor(const doc::Component& component);
/// The options that a compressor has, in the order in which it reads them.
[[nodiscard]] std::vector<std::string> options_of(std::string_view compressor);

/// Whether ranks add its payloads in every round (all-reduce), instead of gathering them.
[[nodiscard]] bool is_summable(const Compressor& compressor);

// The kinds of optimizers, by their use of past gradients. A compressor may do that part itself
// already (Compressor::momentum()), and then the optimizer must be of a kind that fits.

/// The quantity that an optimizer's steps follow.
enum class StepsBy : std::uint8_t {
  gradients,  // each by itself: SGD without momentum, Adagrad, LBFGS
  sum,        // a sum of past ones: SGD's momentum
  average,    // an average of past ones, a first moment: Lion, RMSprop with momentum
  adams,      // Adam's first moment over its second
};

}  // namespace linerate::compress
