// One compressor of the literature: what it sends for a tensor, and what a rank keeps for it from
// step to step. Knows numbers; of ranks only how many there are.
// Thread safety: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

/// One exchange of an encoded tensor. A method with several sends them one after the other, each
/// made of what the one before brought.
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

/// What changes from step to step, by the number of the step alone. Phases of the warm-up last
/// `steps` steps each; then single steps take the cycle's phases in turn. They are numbered warm-up
/// first.
struct Phases {
  std::vector<Phase> warm_up;               // each once, in this order
  std::vector<Phase> cycle{{"steady", 1}};  // in turn, for ever

  /// Of warm-up and cycle together.
  int count() const { return static_cast<int>(warm_up.size() + cycle.size()); }
  /// The phase of step 0, 1, 2 ...
  int of_step(std::int64_t step) const;
  /// Of a phase, by its number.
  const std::string& name(int phase) const;
};

/// The keys of random numbers: a counter-based stream each (core/rng.hpp), of (seed, step,
/// parameter), the same on all ranks, or with the rank as well. Never from call order or a clock.
struct Keys {
  std::uint64_t shared = 0;  // the same on all ranks
  std::uint64_t own = 0;     // another one on each rank
};

/// What a rank compresses in a step. It sends of v = gradient + residual; encoding the last round
/// leaves v - (what this rank's payload decodes to) in `residual`: the local rule, never the mean
/// of the ranks (reference: Karimireddy et al. 2019, arXiv 1901.09847).
struct Input {
  std::span<const float> gradient;  // [elements], finite, not divided by the ranks
  std::span<float> residual;        // [elements]; empty: v = gradient, and nothing is kept
  Keys keys;                        // of this step and tensor
  int ranks = 1;                    // of the job
  /// Of Compressor::phases(). -1: the caller knows none and sends rounds(shape) in every step.
  int phase = -1;
  /// What the loss is multiplied by, so that gradients suit a type of a narrow range: `gradient`
  /// was divided by it, so a payload of such a type holds v times this. Absent: nobody scales, and
  /// nobody looks for infinities.
  std::optional<float> loss_scale = {};
};

/// What arrived of a round. Sums: one payload, the sum over ranks. Gathered: one a rank, in the
/// order of ranks, each of the size its sender said.
struct Arrived {
  std::span<const std::span<const std::byte>> payloads;  // [1] or [ranks]
  int ranks = 1;                                         // that gave one
};

/// A compressor at work on one tensor on one rank; calls of a step come in the order encode(0),
/// decode(0), encode(1), decode(1) ..., then keep() or drop(). A step that is given up after an
/// encode() leaves the residual of no use: the caller has another (CodedTensor).
/// Thread safety: one thread at a time; another codec at the same time.
class Codec {
 public:
  virtual ~Codec() = default;

  /// Writes this rank's payload of `round` and returns its bytes; those of the phase's
  /// rounds()[round], or fewer if that is a bound. The same input gives the same bytes with every
  /// instruction set, and on every machine with the same C library: sidco and dgc take its
  /// logarithms and powers.
  virtual std::size_t encode(int round, const Input& input, std::span<std::byte> payload) = 0;
  /// Takes in what arrived. In the last round it writes mean[elements]: what the optimizer sees,
  /// the same bits on every rank; before that `mean` is empty. Throws InputError for a payload that
  /// is cut or damaged: nothing outside payload and mean is read or written.
  virtual void decode(int round, const Arrived& arrived, std::span<float> mean) = 0;

  /// After encode() under a `loss_scale`: v was beyond what the payload can hold. Then the step
  /// does not count on any rank.
  virtual bool overflowed() const { return false; }

  /// All that it keeps between steps besides the residual: warm-started factors, momentum, counters
  /// of stages. The same fields at all times.
  virtual std::vector<StateField> state() { return {}; }
  /// Whether steps can have left what was loaded: asked of numbers read from a file.
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

/// What a method asks of the optimizer.
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
  /// The exchanges of one tensor, by the formulas of the method. Empty if the tensor should travel
  /// dense: decided by its shape alone, so that all ranks agree. It then is dense in all phases.
  /// Those of a steady step: of the cycle's first phase; if the cycle's differ, what a caller that
  /// knows no phases may use in every step.
  virtual std::vector<Round> rounds(const Shape& shape) const = 0;
  /// The exchanges in one phase. Empty: the tensor travels dense in it, and its codec, which lives
  /// through all phases, is not called.
  virtual std::vector<Round> rounds(const Shape& shape, int phase) const;
  /// For a tensor whose rounds() are not empty.
  [[nodiscard]] virtual std::unique_ptr<Codec> codec(const Shape& shape) const = 0;
  /// Whether encode() is to get a residual.
  virtual Residual residual() const = 0;
  /// What it asks of the optimizer.
  virtual Momentum momentum() const { return Momentum::optimizers; }
  /// Of a tensor that travels dense: decode(0, {}, mean) makes of the mean what the optimizer gets.
  /// Null: that is the mean.
  [[nodiscard]] virtual std::unique_ptr<Codec> of_dense(const Shape&) const { return nullptr; }
  /// Gathered payloads take the two-phase exchange unless another is asked for.
  virtual bool is_two_phase() const { return false; }
  /// What encodes means of decoded payloads for a second trip (two-phase exchange), if that is not
  /// this compressor itself: one with momentum must not average twice.
  [[nodiscard]] virtual std::unique_ptr<const Compressor> of_means() const { return nullptr; }
  /// Bytes of the arrays in state() of a tensor's codec: factors, momentum. Asked for whole models,
  /// so by the shape alone.
  virtual std::int64_t remembered_bytes(const Shape&) const { return 0; }
  /// Floating point operations of the products of matrices that coding this tensor takes: encode,
  /// decode and residual.
  virtual double products(const Shape&) const { return 0; }
  /// The expectation of what decode() writes is the mean of what was encoded.
  virtual bool is_unbiased() const { return false; }
  /// What codes chunks of tensors (two-phase exchange), which are coded however small they are.
  virtual const Compressor& of_chunks() const { return *this; }
};

/// Whether a caller gives encode() a residual.
[[nodiscard]] inline bool keeps_residual(const Compressor& compressor) {
  const Residual kind = compressor.residual();
  return kind == Residual::needed || kind == Residual::optional;
}

/// What a rank keeps of a tensor from step to step, besides its gradient: residual and what its
/// codec remembers, each as the last step left it and as this one does, so that a step can be
/// undone. Zero if the tensor travels dense.
[[nodiscard]] std::int64_t kept_bytes(const Compressor& compressor, const Shape& shape);

/// Whether no element is infinite or a NaN: asked before encode(), agreed by all ranks.
[[nodiscard]] bool all_finite(std::span<const float> values);

}  // namespace linerate::compress
