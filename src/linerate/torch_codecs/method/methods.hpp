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

Made make_fp16(const Making& making, doc::OptionReader& options);
Made make_bf16(const Making& making, doc::OptionReader& options);
Made make_signsgd(const Making& making, doc::OptionReader& options);
Made make_signsgd_dense(const Making& making, doc::OptionReader& options);
Made make_efsignsgd(const Making& making, doc::OptionReader& options);
Made make_onebit(const Making& making, doc::OptionReader& options);
Made make_onebit_adam(const Making& making, doc::OptionReader& options);
Made make_qsgd(const Making& making, doc::OptionReader& options);
Made make_maxmin(const Making& making, doc::OptionReader& options);
Made make_terngrad(const Making& making, doc::OptionReader& options);
Made make_natural(const Making& making, doc::OptionReader& options);
Made make_topk(const Making& making, doc::OptionReader& options);
Made make_randomk(const Making& making, doc::OptionReader& options);
Made make_threshold(const Making& making, doc::OptionReader& options);
Made make_sidco(const Making& making, doc::OptionReader& options);
Made make_dgc(const Making& making, doc::OptionReader& options);
Made make_dgc_dense(const Making& making, doc::OptionReader& options);
Made make_mstopk(const Making& making, doc::OptionReader& options);
Made make_powersgd(const Making& making, doc::OptionReader& options);
Made make_acpsgd(const Making& making, doc::OptionReader& options);

}  // namespace linerate::torch_codecs
