// The codecs over tensors, one function a method; registry.cpp names them.
#pragma once

#include <memory>

#include "linerate/doc/option_reader.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

/// `options` are the compressor's.
using MakeTensorCodec = std::unique_ptr<TensorCodec> (*)(const Making& making,
                                                         doc::OptionReader& options);
using Made = std::unique_ptr<TensorCodec>;

Made make_topk(const Making& making, doc::OptionReader& options);
Made make_randomk(const Making& making, doc::OptionReader& options);
Made make_threshold(const Making& making, doc::OptionReader& options);
Made make_sidco(const Making& making, doc::OptionReader& options);
Made make_dgc(const Making& making, doc::OptionReader& options);
Made make_dgc_dense(const Making& making, doc::OptionReader& options);
Made make_mstopk(const Making& making, doc::OptionReader& options);

}  // namespace linerate::torch_codecs
