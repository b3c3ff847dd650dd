// A compressor of the literature: what it sends for a tensor, and what a rank keeps for that tensor
// from step to step. It works on numbers only, and of the other ranks it gets only their number.
//
// The exchange is the caller's. A step of one gathered round on three ranks begins with encode(0)
// on each rank. It writes a payload of gradient plus residual, and leaves the rest in the residual.
// The caller brings all three payloads to each rank. decode(0) reads the three in the order of
// ranks and writes the mean, the same bits everywhere. Then keep() ends the step.
//
// Thread safety: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/state.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::compress {

/// A tensor as compressors see it: `rows` is its first dimension if it has two or more, else 1.
struct Shape {
  std::int64_t elements = 0;  // of the tensor
  std::int64_t rows = 1;      // of the matrix that it is taken for
  /// Elements of a row.
  std::int64_t columns() const { return rows > 0 ? elements / rows : 0; }
  bool operator==(const Shape&) const = default;
};

/// How the payloads of the ranks are combined.
enum class Combine : std::uint8_t {
  sum,     // payloads are arrays of `dtype` that ranks add: all-reduce
  gather,  // every rank reads every payload: all-gather, or the two-phase exchange
};

/// One exchange of an encoded tensor. A method with several rounds sends them one after the other.
/// Each payload is made of the result of the round before.
struct Round {
  Combine combine = Combine::gather;  // of the ranks' payloads
  DType dtype = DType::u8;            // of the payload's elements: u8 if it is gathered
  std::int64_t bytes = 0;             // of one rank's payload, exactly; or at most, if `is_bound`
  bool is_bound = false;              // the size depends on the values
  std::int64_t expected = 0;          // of a bound: what it is as a rule; 0: unknown
};

/// A stretch of training in which a method sends the same rounds.
struct Phase {
  std::string name;        // ends the names of the Plan's variants: "warm-up"
  std::int64_t steps = 1;  // of a warm-up; in a cycle each phase is one step
};

/// The part of a method that changes from step to step, by the step's number alone. Each phase of
/// the warm-up lasts its `steps` steps. Then single steps take the cycle's phases in turn. Phases
/// are numbered from 0, the warm-up's first.
struct Phases {
  std::vector<Phase> warm_up;               // each once, in this order
  std::vector<Phase> cycle{{"steady", 1}};  // in turn, for ever

  /// The number of phases of warm-up and cycle together.
  int count() const { return static_cast<int>(warm_up.size() + cycle.size()); }
  /// The phase of step 0, 1, 2 ...
  int of_step(std::int64_t step) const;
  /// The name of a phase, by its number.
  const std::string& name(int phase) const;
};

/// The keys of random numbers: a counter-based stream each (core/random.hpp). `shared` depends on
/// (seed, step, parameter), so all ranks draw alike. `own` depends on the rank as well. Neither
/// depends on the order of calls or on a clock.
struct Keys {
  std::uint64_t shared = 0;  // the same on all ranks
  std::uint64_t own = 0;     // another one on each rank
};

/// The input of a step on one rank. With v = gradient + residual, encoding the last round leaves v
/// - (the decoded payload of this rank) in `residual`. This is the local rule, never the mean of
/// the ranks (reference: Karimireddy et al. 2019, arXiv 1901.09847).
struct Input {
  std::span<const float> gradient;  // [elements], finite, not divided by the ranks
  std::span<float> residual;        // [elements]; empty: v = gradient, and nothing is kept
  Keys keys;                        // of this step and tensor
  int ranks = 1;                    // of the job
  /// Of Compressor::phases(). -1: the caller knows none and sends rounds(shape) in every step.
  int phase = -1;
  /// The factor of the loss under loss scaling, with which gradients suit a type of a narrow range.
  /// `gradient` was divided by it, so a payload of such a type holds v times this factor. Absent:
  /// the loss is not scaled, and infinities are not looked for.
  std::optional<float> loss_scale = {};
};

/// The payloads that arrived in a round. Sums: one payload, the sum over ranks. Gathered: one from
/// each rank, in the order of ranks, each of the size that its sender stated.
struct Arrived {
  std::span<const std::span<const std::byte>> payloads;  // [1] or [ranks]
  int ranks = 1;                                         // that gave one
};

/// A compressor at work on one tensor on one rank. The calls of a step come in the order encode(0),
/// decode(0), encode(1), decode(1) ..., then keep() or drop(). If a step is given up after an
/// encode(), the residual has no meaning any more. The caller has a copy of it (CodedTensor).
/// Thread safety: one thread at a time; another codec at the same time.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Writes this rank's payload of `round` and returns its bytes; those of the phase's
  /// rounds()[round], or fewer if that is a bound. The same input gives the same bytes with every
  /// instruction set. It does so on every machine with the same C library, because sidco and dgc
  /// take its logarithms and powers.
  virtual std::size_t encode(int round, const Input& input, std::span<std::byte> payload) = 0;
  /// Reads the payloads that arrived. In the last round it writes mean[elements] for the optimizer,
  /// the same bits on every rank. Before that `mean` is empty. Throws InputError for a payload that
  /// is cut or damaged. Nothing outside payload and mean is read or written.
  virtual void decode(int round, const Arrived& arrived, std::span<float> mean) = 0;

  /// After encode() under a `loss_scale`: v was beyond what the payload can hold. Then the step
  /// does not count on any rank.
  virtual bool overflowed() const { return false; }

  /// All that the codec keeps between steps besides the residual: warm-started factors, momentum,
  /// counters of stages. The same fields at all times.
  virtual std::vector<StateField> state() { return {}; }
  /// Whether a step can have left the state that was loaded. load() asks this of numbers from a
  /// file.
  virtual bool is_sane() const { return true; }

  /// Ends each step: it counts, or state is as it was before it.
  void keep();
  /// The step does not count: state is as it was before it.
  void drop();
  /// state(), for a checkpoint.
  [[nodiscard]] SavedState save();
  /// Throws InputError for what save() of the same compressor on the same shape cannot have given;
  /// state is then as it was.
  void load(const SavedState& saved);
};

/// Whether a compressor needs error feedback to converge.
enum class Residual : std::uint8_t { none, optional, needed, own };
inline constexpr std::array<std::string_view, 4> kResidualNames = {"none", "optional", "needed",
                                                                   "own"};
[[nodiscard]] constexpr std::string_view name_of(Residual r) {
  return kResidualNames[static_cast<std::size_t>(r)];
}

/// The demand of a method on the optimizer.
enum class Momentum : std::uint8_t {
  optimizers,  // nothing: it sends gradients
  own,         // none: it has momentum of its own, so the optimizer must be SGD without; what the
               // method leaves dense gets it from of_dense()
  adams,       // Adam: what it sends is a first moment
};

/// A compressor with its options: immutable, and the same on every rank.
/// Thread safety: immutable, any thread.
class Compressor {
 public:
  virtual ~Compressor() = default;
  /// How its steps differ: one phase for most methods.
  virtual Phases phases() const { return {}; }
  /// The rounds of one tensor, by the formulas of the method. Empty if the tensor should travel
  /// dense. This is decided by its shape alone, so all ranks agree, and the tensor is then dense in
  /// all phases. The rounds are those of a steady step, in the cycle's first phase. If the cycle's
  /// phases differ, they are rounds that a caller without phases may use in every step.
  virtual std::vector<Round> rounds(const Shape& shape) const = 0;
  /// The rounds in one phase. Empty: the tensor travels dense in this phase. Its codec lives
  /// through all phases, but is not called in this one.
  virtual std::vector<Round> rounds(const Shape& shape, int phase) const;
  /// For a tensor whose rounds() are not empty.
  [[nodiscard]] virtual std::unique_ptr<Codec> codec(const Shape& shape) const = 0;
  /// Whether encode() is to get a residual.
  virtual Residual residual() const = 0;
  /// The method's demand on the optimizer.
  virtual Momentum momentum() const { return Momentum::optimizers; }
  /// Of a tensor that travels dense: decode(0, {}, mean) turns the mean into the optimizer's
  /// gradient. Null: that is the mean.
  [[nodiscard]] virtual std::unique_ptr<Codec> of_dense(const Shape&) const { return nullptr; }
  /// Gathered payloads take the two-phase exchange unless another is asked for.
  virtual bool is_two_phase() const { return false; }
  /// The compressor that encodes means at the owners of the two-phase exchange, if it is not this
  /// one. A compressor with momentum must not average twice.
  [[nodiscard]] virtual std::unique_ptr<const Compressor> of_means() const { return nullptr; }
  /// Bytes of the arrays in state() of a tensor's codec: factors, momentum. Asked for whole models,
  /// so by the shape alone.
  virtual std::int64_t remembered_bytes(const Shape&) const { return 0; }
  /// The floating point operations of the products of matrices in coding this tensor: encode,
  /// decode and residual.
  virtual double products(const Shape&) const { return 0; }
  /// Whether the expectation of decode()'s mean is the mean of the encoded values.
  virtual bool is_unbiased() const { return false; }
  /// Under a strategy that does not say dense_below=, tensors of fewer elements travel dense. To
  /// code a small tensor costs more time than it saves.
  virtual std::int64_t dense_below() const { return 4096; }
  /// The compressor that codes chunks of tensors in the two-phase exchange. It codes them however
  /// small they are.
  virtual const Compressor& of_chunks() const { return *this; }
};

/// Whether a caller gives encode() a residual.
[[nodiscard]] inline bool keeps_residual(const Compressor& compressor) {
  const Residual kind = compressor.residual();
  return kind == Residual::needed || kind == Residual::optional;
}

/// The bytes that a rank keeps for a tensor from step to step, besides its gradient: the residual
/// and the codec's fields. Both exist twice, as the last step left them and as this one writes
/// them, so that a step can be undone. Zero if the tensor travels dense.
[[nodiscard]] std::int64_t kept_bytes(const Compressor& compressor, const Shape& shape);

/// Whether no element is infinite or a NaN: asked before encode(), agreed by all ranks.
[[nodiscard]] bool all_finite(std::span<const float> values);
/// Numbers as they lie in memory, such as those of a saved field.
[[nodiscard]] inline std::vector<float> floats_in(std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

}  // namespace linerate::compress
