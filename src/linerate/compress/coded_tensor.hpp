// A parameter as compressors see it on one rank, with what a step leaves for the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/compression_state.hpp"
#include "linerate/compress/two_phase.hpp"

namespace linerate::compress {

/// A compressor and its user: a parameter's codecs are made for these.
struct TensorMethod {
  std::string label;  // the compressor's text and how it is exchanged
  const Compressor* compressor = nullptr;
  bool two_phase = false;
  int rank = 0, ranks = 1;
  bool is_dense = false;  // the compressor's of_dense() alone sees it
};

/// The keys of a parameter in a step: from (seed, step, name), and its own from the rank too.
Keys keys_of_step(std::uint64_t seed, std::int64_t step, std::string_view name, int rank);

/// Holds the state of one parameter and calls its codec. Only this class calls codecs of whole
/// tensors. While it does so the thread keeps denormals (keep_denormals.hpp), so that no codec has
/// to.
class CodedTensor {
 public:
  CodedTensor(std::string name, const Shape& shape, CompressedTensorState saved);

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }

  /// This method codes it from now on. What is owed stays owed: the residual, what owners of the
  /// two-phase exchange kept, and what a codec had not sent. What else a codec remembered stays if
  /// the compressor is the same by other options or another exchange, and it fits. A method without
  /// error feedback sends the residual that another one left with the next gradient.
  void use(const TensorMethod& method);

  /// Before the first encode of a step: `gradient` may get what is still owed.
  /// `loss_scale` is Input's.
  void begin_step(std::uint64_t seed, std::int64_t step, int rank, std::span<float> gradient,
                  std::optional<float> loss_scale = {});
  /// Before a step in which it travels dense: all that is owed to it, for the caller to add to its
  /// gradient. Nothing of it is owed any more once the step counts. Empty: nothing is owed.
  std::span<const float> begin_dense(int rank);
  /// In place of encode() and decode(), for a tensor that travels dense: its mean has come.
  void take_dense(std::span<float> mean);
  /// The step counts; or it does not, and everything is as it was before.
  void keep();
  void drop();

  /// As Codec's encode() and decode(); `ranks` of the mean. `payload` has the room that its Round
  /// states. Throws UsageError for a codec that says it wrote more, or less where the Round is
  /// exact. Not in the two-phase exchange.
  std::size_t encode(int round, std::span<const float> gradient, int ranks, int phase,
                     std::span<std::byte> payload);
  void decode(int round, const Arrived& arrived, std::span<float> mean);
  /// The parts that a TwoPhaseExchange of its bucket uses, after begin_step(). The residual is the
  /// copy that this step writes, and empty without error feedback.
  TwoPhase& two_phase() const { return *two_phase_; }
  const Keys& keys() const { return keys_; }
  std::span<float> next_residual() { return keeps_ ? std::span(next_) : std::span<float>(); }

  /// The bytes that encode() returned last.
  std::size_t sent_bytes() const { return sent_; }
  /// As Codec's.
  bool overflowed() const { return codec_ && codec_->overflowed(); }

  CompressedTensorState state() const;

 private:
  void make_codec(const TensorMethod& method);
  void succeed(CompressedTensorState before, const TensorMethod& method);
  void give_residual_to_codec();
  bool take(const SavedState& kept);

  std::string name_;
  Shape shape_;
  std::string label_;
  const Compressor* compressor_ = nullptr;  // of the method
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<TwoPhase> two_phase_;
  bool keeps_ = false;            // the method has error feedback
  std::vector<float> residual_;   // as the last step that counts left it; empty: zeros
  std::vector<float> next_;       // as this step leaves it
  CompressedTensorState loaded_;  // of a codec that has not been made yet
  Keys keys_;
  std::optional<float> loss_scale_;  // of this step
  std::size_t sent_ = 0;
  bool is_touched_ = false;        // by this step
  bool sends_residual_ = false;    // with this step's gradient: owed no more once the step counts
  bool may_owe_elsewhere_ = true;  // than in the residual
};

}  // namespace linerate::compress
