// The option dense_below=, which every compressor has: smaller tensors travel dense.
//
// A strategy's text and a Plan's operation differ by its default. "topk" of a strategy means
// topk(dense_below=4096), as the compressor says (Compressor::dense_below()), and the planner
// writes that into the Plan. "topk" of a Plan codes tensors of every size, so a Plan of older times
// keeps its meaning.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// Passes all calls to another compressor. For those that change a few of them.
class OverCompressor : public Compressor {
 public:
  explicit OverCompressor(std::shared_ptr<const Compressor> inner) : inner_(std::move(inner)) {}

  Phases phases() const override { return inner_->phases(); }
  std::vector<Round> rounds(const Shape& shape) const override { return inner_->rounds(shape); }
  std::vector<Round> rounds(const Shape& shape, int phase) const override {
    return inner_->rounds(shape, phase);
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override { return inner_->codec(shape); }
  Residual residual() const override { return inner_->residual(); }
  Momentum momentum() const override { return inner_->momentum(); }
  std::unique_ptr<Codec> of_dense(const Shape& shape) const override {
    return inner_->of_dense(shape);
  }
  bool is_two_phase() const override { return inner_->is_two_phase(); }
  std::unique_ptr<const Compressor> of_means() const override { return inner_->of_means(); }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return inner_->remembered_bytes(shape);
  }
  double products(const Shape& shape) const override { return inner_->products(shape); }
  bool is_unbiased() const override { return inner_->is_unbiased(); }
  std::int64_t dense_below() const override { return inner_->dense_below(); }
  const Compressor& of_chunks() const override { return inner_->of_chunks(); }

 protected:
  const std::shared_ptr<const Compressor>& inner() const { return inner_; }

 private:
  std::shared_ptr<const Compressor> inner_;
};

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
