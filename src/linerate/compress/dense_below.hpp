// The option dense_below=, which every compressor has: smaller tensors travel dense.
//
// A strategy's text and a Plan's operation differ by its default. "topk" of a strategy means
// topk(dense_below=4096), as the compressor says (Compressor::dense_below()), and the planner
// writes that into the Plan. "topk" of a Plan codes tensors of every size, so a Plan of older times
// keeps its meaning.
#pragma once

#include <memory>
#include <string_view>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

inline constexpr std::string_view kDenseBelow = "dense_below";

/// A compressor that was made from these options, by its option dense_below=. The caller refuses
/// what was not read. Null stays null.
std::unique_ptr<const Compressor> with_dense_below(std::unique_ptr<const Compressor> compressor,
                                                   doc::OptionReader& options);

/// A strategy's compressor as a Plan's operations name it: with its default, and without
/// dense_below=0. Its text is in registry.cpp, which makes compressors.
doc::Component as_planned(doc::Component component);
/// The component without the option, which does not change how a coded tensor is coded.
doc::Component without_dense_below(doc::Component component);

}  // namespace linerate::compress
