// The interface through which a driver of training steps uses a Plan's compressors, wherever they
// compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/coded_bucket.hpp"
#include "linerate/exec/step_machine.hpp"

namespace linerate::exec {

/// The encode and decode operations of training Plans that compress. A step leaves something in its
/// codecs: residuals, warm-started factors. That counts once the step is accepted, so keep() or
/// drop() ends each step. Decodes of a step that counts may follow keep().
///
/// Buckets hold gradients in their own units (not divided by the ranks); decode writes the mean
/// over the ranks. Residuals belong to parameters, by name, so another cut into buckets loses none
/// of them.
///
/// Residuals and factors are in units of the loss, whatever a scaler multiplies the loss by.
/// Buckets that are encoded hold gradients divided by that scale; decode multiplies the means by it
/// again.
class StepCompression : public Operation {
 public:
  /// Codecs and residuals are kept if name, shape and compressor stay. Between steps, when no task
  /// runs.
  virtual void set_plan(std::shared_ptr<const doc::Plan> plan) = 0;
  /// The phase of the next step, which follows from the number of steps that counted. The name of
  /// the step's variant ends with a dot and this phase. Empty if all steps are alike.
  virtual std::string phase() const = 0;
  /// Comes before the tasks of a step, when no task of the step before it runs. Random numbers are
  /// drawn from the number of steps that counted, so a step that is dropped and repeated draws the
  /// same ones.
  virtual void begin_step() = 0;
  /// Comes after begin_step(), with the variant that the step runs. Gradients that the variant
  /// sends dense take their parameters' residuals along, until keep() or drop(). If the step
  /// counts, those residuals are zero from then on. `shapes`: by position in the Plan.
  virtual void begin_dense(const doc::TaskGraph& graph,
                           std::span<const compress::Shape> shapes) = 0;
  /// The factor by which a scaler multiplied the loss of the step's gradients; absent: no scaler.
  /// Comes before the first task of a step, and stays until it is set again.
  void set_loss_scale(std::optional<double> scale) {
    loss_scale_ = scale ? std::optional(static_cast<float>(*scale)) : std::nullopt;
  }
  std::optional<float> loss_scale() const { return loss_scale_; }
  /// Whether the Plan's compressor turns means that travel dense into something else for the
  /// optimizer (Compressor::of_dense). Then each such mean is shown to it, once in a step.
  virtual bool sees_dense_means() const = 0;
  /// The step counts on every rank, except for the parameters of these names. No rank used those,
  /// so nobody takes their means and their residuals stay as they were.
  virtual void keep(std::set<std::string> unused = {}) = 0;
  /// The step counts on no rank: codecs are as they were before.
  virtual void drop() = 0;

  /// Between steps. load() replaces what there is: parameters that it does not name, and codecs of
  /// another compressor, begin anew; residuals stay.
  virtual compress::CompressionState save() const = 0;
  virtual void load(compress::CompressionState state) = 0;

 private:
  std::optional<float> loss_scale_;
};

// The compressors of a Plan at work on one rank: codecs and residuals by parameter, and the encode
// and decode tasks of each bucket.
//
// A runner calls run() for each such task, in the codec's lane. The training step calls the rest,
// between steps.

/// Gradients of a greater magnitude count as infinite under a strategy that compresses. Residuals,
/// momenta and products of factors add gradients up over steps, ranks and elements. No network
/// trains on such numbers, and even 10^19 of them add up to a finite f32.
inline constexpr float kGreatestGradient = 0x1p64f;
/// Whether a step with these gradients may count: none of them is infinite, as above, or a NaN.
/// `scale`: what the loss was multiplied by; a magnitude counts in units of the loss.
bool are_usable(std::span<const float> gradients, float scale = 1);

/// What does not depend on where tensors lie. `Ops` is the back end of codecs, `Numbers` f32 of it:
/// a bucket's values or a part of them. `Tensor` codes a parameter over this back end.
template <class Ops, class Tensor, class Numbers>
class CompressionOver : public StepCompression {
 public:
  using Bytes = typename Ops::Bytes;
  using CodedBucket = CodedBucketOf<Tensor>;
  using Owed = decltype(std::declval<Tensor&>().begin_dense(0));

  void set_plan(std::shared_ptr<const doc::Plan> plan) override {
    buckets_.clear();
    coded_.clear();
    codings_.set_plan(std::move(plan));
  }
  std::string phase() const override { return codings_.phase_of(steps_); }
  /// Only parameters that an earlier step has coded have a tensor: it may still have a residual to
  /// send.
  void begin_dense(const doc::TaskGraph& graph, std::span<const compress::Shape> shapes) override {
    owed_.clear();
    if (tensors_.empty() && loaded_.tensors.empty()) return;
    const std::vector<bool>& is_coded = coded_in(graph);
    for (std::size_t position = 0; position < shapes.size(); ++position) {
      const std::string& name = codings_.names()[position];
      if (is_coded[position] || !(tensors_.contains(name) || loaded_.tensors.contains(name)))
        continue;
      Tensor& tensor = tensor_of(name, shapes[position]);
      const Owed owed = tensor.begin_dense(rank_);
      if (!tensor.sends_residual()) continue;
      owed_.resize(shapes.size());
      owed_[position] = owed;
    }
  }
  /// The residual that a gradient which travels dense takes along: [elements], row by row, in
  /// gradient units. Empty, or undefined on a device: none.
  Owed owed(std::int32_t position) const {
    return owed_.empty() ? Owed() : owed_[to_index(position)];
  }
  /// Whether any gradient takes a residual along in this step.
  bool sends_owed() const { return !owed_.empty(); }
  bool sees_dense_means() const override { return codings_.sees_dense_means(); }
  void keep(std::set<std::string> unused = {}) override {
    ++steps_;
    counted_ = std::move(unused);
  }
  void drop() override {
    for (const auto& [name, tensor] : tensors_) tensor->drop();
  }
  compress::CompressionState save() const override {
    compress::CompressionState state = loaded_;
    state.step = steps_;
    for (const auto& [name, tensor] : tensors_) state.tensors[name] = tensor->state();
    return state;
  }
  void load(compress::CompressionState state) override {
    steps_ = state.step;
    tensors_.clear();
    buckets_.clear();
    loaded_ = std::move(state);
  }

  void run(const doc::TaskGraph& graph, const doc::Task& task) override {
    CodedBucket& bucket = bucket_of(graph, task);
    const Numbers values = values_of(bucket, task.first);
    if (task.kind == doc::TaskKind::decode)
      decode(bucket, values);
    else if (const int round = codings_.round_of(task); round == 0)
      encode(bucket, values);
    else
      encode_round(bucket, to_index(round), values);
  }

 protected:
  using MakeTensor = std::function<std::unique_ptr<Tensor>(
      const std::string& name, const compress::Shape& shape, compress::CompressedTensorState)>;

  CompressionOver(int rank, int ranks, std::uint64_t seed, BucketCodings::MakeCompressor make,
                  MakeTensor make_tensor)
      : rank_(rank),
        ranks_(ranks),
        seed_(seed),
        codings_(rank, ranks, std::move(make)),
        make_tensor_(std::move(make_tensor)) {}

  /// The tensor of a parameter. It is made when it is first asked for, from the state of load() if
  /// that names it. A tensor whose shape has changed begins anew.
  Tensor& tensor_of(const std::string& name, const compress::Shape& shape) {
    std::unique_ptr<Tensor>& tensor = tensors_[name];
    if (tensor && tensor->shape() == shape) return *tensor;
    auto saved = loaded_.tensors.extract(name);
    tensor = make_tensor_(
        name, shape, saved.empty() ? compress::CompressedTensorState{} : std::move(saved.mapped()));
    return *tensor;
  }

  static Numbers values_of_part(const Numbers& values, const compress::BucketPart& part) {
    return Ops::part(values, part.value, part.shape.elements);
  }

  // The memory of payloads: values of a bucket or of what travels dense, and bytes of any.
  virtual Numbers values_of(const CodedBucket& bucket, std::int32_t payload) = 0;
  virtual Bytes bytes_of(const CodedBucket& bucket, std::int32_t payload) = 0;
  virtual void copy(const std::vector<Numbers>& to, const std::vector<Numbers>& from) = 0;
  virtual void multiply(const std::vector<Numbers>& values, float by) = 0;

  /// Gradients that are not usable are found and taken for zero. The bucket's tensors begin a step.
  virtual void begin_tensors(CodedBucket& bucket, const Numbers& values) = 0;
  /// For the two-phase exchange.
  virtual typename Ops::Arrays arrays_of(const CodedBucket& bucket,
                                         const Numbers& values) const = 0;
  virtual void note_damage(const CodedBucket&, const typename Ops::Damage&) {}
  // Payloads of one round of sums, or of the only round if it is gathered. No `values`: a round of
  // sums before the last one, whose result the codecs keep.
  virtual void encode_sum(CodedBucket& bucket, std::size_t round, const Numbers& values) = 0;
  virtual void encode_gathered(CodedBucket& bucket, const Numbers& values) = 0;
  virtual void decode_sum(CodedBucket& bucket, std::size_t round, const Numbers& values) = 0;
  virtual void decode_gathered(CodedBucket& bucket, const Numbers& values) = 0;

  int rank_, ranks_;
  std::uint64_t seed_;
  BucketCodings codings_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;  // by parameter
  std::int64_t steps_ = 0;                                  // that counted
  std::vector<Owed> owed_;  // by position: residuals to send dense; empty: none in this step
  /// The parameters that no rank used, of a step that counts and is not settled. Absent: no such
  /// step.
  mutable std::optional<std::set<std::string>> counted_;

 private:
  /// The bucket that a task codes.
  CodedBucket& bucket_of(const doc::TaskGraph& graph, const doc::Task& task) {
    const std::pair key(&graph, task.first);
    const auto known = buckets_.find(key);
    if (known != buckets_.end()) return known->second;
    CodedBucket bucket{codings_.make(graph, task), {}};
    for (std::size_t i = 0; i < bucket.names.size(); ++i) {
      const compress::BucketPart& part = bucket.layout.parts[i];
      bucket.tensors.push_back(part.is_coded() ? &tensor_of(*bucket.names[i], part.shape)
                                               : nullptr);
    }
    return buckets_.emplace(key, std::move(bucket)).first->second;
  }
  /// Whether a variant codes each parameter, by position in the Plan. Made once for a variant.
  const std::vector<bool>& coded_in(const doc::TaskGraph& graph) {
    std::vector<bool>& is_coded = coded_[&graph];
    const std::vector<std::string>& names = codings_.names();
    if (!is_coded.empty()) return is_coded;
    is_coded.resize(names.size());
    for (const doc::Task& task : graph.tasks) {
      if (task.kind != doc::TaskKind::encode || !codings_.is_coding(task)) continue;
      const CodedBucket& bucket = bucket_of(graph, task);
      for (std::size_t i = 0; i < bucket.names.size(); ++i)
        if (bucket.tensors[i]) is_coded[to_index(bucket.names[i] - names.data())] = true;
    }
    return is_coded;
  }

  void encode(CodedBucket& bucket, const Numbers& values) {
    begin_tensors(bucket, values);
    if (bucket.step.two_phase)
      two_phase_exchange_of<Ops>(bucket).encode(
          arrays_of(bucket, values), bytes_of(bucket, bucket.payloads.front()), bucket.step.phase);
    else if (bucket.layout.rounds.front().combine == compress::Combine::sum)
      encode_sum(bucket, 0, values);
    else
      encode_gathered(bucket, values);
    const DenseParts dense = dense_parts(bucket, values);
    if (!dense.values.empty()) copy(dense.sent, dense.values);
  }

  /// Reads what came back from the last round, then encodes this one.
  void encode_round(CodedBucket& bucket, std::size_t round, const Numbers& values) {
    if (bucket.has_owners())
      return note_damage(
          bucket, two_phase_exchange_of<Ops>(bucket).reduce(bytes_of(bucket, bucket.payloads[1]),
                                                            bytes_of(bucket, bucket.payloads[2])));
    decode_sum(bucket, round - 1, {});
    encode_sum(bucket, round, values);
  }

  void decode(CodedBucket& bucket, const Numbers& values) {
    if (bucket.step.two_phase)
      note_damage(bucket, two_phase_exchange_of<Ops>(bucket).finish(
                              bytes_of(bucket, bucket.payloads.back()), arrays_of(bucket, values)));
    else if (bucket.layout.rounds.back().combine == compress::Combine::sum)
      decode_sum(bucket, bucket.layout.rounds.size() - 1, values);
    else
      decode_gathered(bucket, values);
    if (const DenseParts dense = dense_parts(bucket, values); !dense.values.empty()) {
      copy(dense.values, dense.sent);
      multiply(dense.values, 1.0f / static_cast<float>(ranks_));
    }
    if (const float scale = loss_scale().value_or(1); scale != 1) multiply({values}, scale);
  }

  /// Gradients that travel dense, and their sums. These are in a payload of their own, or after the
  /// first round's sums in the same payload.
  struct DenseParts {
    std::vector<Numbers> values, sent;
  };
  DenseParts dense_parts(const CodedBucket& bucket, const Numbers& values) {
    DenseParts parts;
    if (bucket.layout.dense_elements == 0) return parts;
    const bool rides = bucket.dense < 0;
    const Numbers sums = values_of(bucket, rides ? bucket.payloads.front() : bucket.dense);
    const std::int64_t begin = rides ? bucket.layout.dense_begin : 0;
    for (const compress::BucketPart& part : bucket.layout.parts) {
      if (part.is_coded()) continue;
      parts.values.push_back(values_of_part(values, part));
      parts.sent.push_back(Ops::part(sums, begin + part.dense, part.shape.elements));
    }
    return parts;
  }

  MakeTensor make_tensor_;
  std::map<std::pair<const doc::TaskGraph*, std::int32_t>, CodedBucket> buckets_;
  std::map<const doc::TaskGraph*, std::vector<bool>> coded_;
  compress::CompressionState loaded_;  // states of load() whose tensors no step has asked for yet
};

/// StepCompression on this rank's processor, over memory of the host.
///
/// The life of a residual, in three steps. Step 7 encodes: each codec writes its new residual next
/// to the old one. keep() says that step 7 counts, but its decodes may still run, and a decode may
/// write the state as well. So nothing moves yet. begin_step() of step 8 comes after those decodes;
/// settle() then makes the new residual the codec's. If step 8 overflows, drop() throws its new
/// residual away at once, and step 9 encodes with the residual of step 7.
class Compression final
    : public CompressionOver<compress::HostOps, compress::CodedTensor, std::span<float>> {
 public:
  /// `payloads` outlives it. The seed is the same on every rank.
  Compression(Payloads& payloads, int rank, int ranks, std::uint64_t seed)
      : CompressionOver(
            rank, ranks, seed, compress::make_compressor,
            [](const auto& name, const auto& shape, compress::CompressedTensorState state) {
              return std::make_unique<compress::CodedTensor>(name, shape, std::move(state));
            }),
        payloads_(payloads) {}

  /// Names of the operations in a Plan that this one runs; empty if nothing is compressed.
  static std::set<std::string> operations_of(const doc::Plan& plan);

  void begin_step() override;
  /// Gradients that are not usable were found in this step, in a bucket that is encoded. They were
  /// taken for zero, and the step must not count.
  bool found_infinite() const { return infinite_; }
  /// Does nothing for a parameter that the compressor codes. `mean` is that of scaled gradients.
  void take_dense_mean(const std::string& name, const compress::Shape& shape,
                       std::span<float> mean);
  void drop() override { settle(); }
  compress::CompressionState save() const override;

 private:
  void settle() const;
  std::span<float> values_of(const CodedBucket& bucket, std::int32_t payload) override;
  std::span<std::byte> bytes_of(const CodedBucket& bucket, std::int32_t payload) override;
  std::span<std::int64_t> counts_of(const CodedBucket& bucket);
  void copy(const std::vector<std::span<float>>& to,
            const std::vector<std::span<float>>& from) override;
  void multiply(const std::vector<std::span<float>>& values, float by) override;
  void begin_tensors(CodedBucket& bucket, const std::span<float>& values) override;
  compress::HostOps::Arrays arrays_of(const CodedBucket& bucket,
                                      const std::span<float>& values) const override;
  void encode_sum(CodedBucket& bucket, std::size_t round, const std::span<float>& values) override;
  void encode_gathered(CodedBucket& bucket, const std::span<float>& values) override;
  void decode_sum(CodedBucket& bucket, std::size_t round, const std::span<float>& values) override;
  void decode_gathered(CodedBucket& bucket, const std::span<float>& values) override;

  Payloads& payloads_;
  bool infinite_ = false;
};

// Runs the Plan's compressors for what they cost: on noise, each rank by itself.

/// Encodes noise, and decodes its own payload in place of every rank's.
///
/// `rehearse --real codec` runs this in the codec's lane. The collectives of a rehearsal move other
/// memory (PayloadArena), because the numbers on the wire do not matter. But a decode needs
/// payloads of the right form. So after each encode this copies its own block to where the other
/// ranks' blocks would arrive. Each rank then seems to have sent as much as this one.
class CompressionLoad : public Operation {
 public:
  CompressionLoad(std::shared_ptr<const doc::Plan> plan, int rank, int ranks);

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  class Memory : public Payloads {
   public:
    explicit Memory(const doc::Plan& plan);
    comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override;
    /// Buckets are the noise, or what a decode writes over.
    void set_decoding(bool decoding) { decoding_ = decoding; }

   private:
    std::vector<float> noise_, decoded_;  // as large as the largest bucket
    std::map<std::pair<const doc::TaskGraph*, std::int32_t>, std::vector<std::byte>> encoded_;
    bool decoding_ = false;
  };

  void stand_in_for_others(const doc::TaskGraph& graph, const doc::Task& task);
  void repeat_own_block(const doc::TaskGraph& graph, std::int32_t from, std::int32_t to);
  void repeat_own_part(const doc::TaskGraph& graph, std::int32_t payload, std::int32_t counts);

  std::shared_ptr<const doc::Plan> plan_;
  int rank_, ranks_;
  Memory memory_;
  Compression compression_;
  std::set<std::int32_t> encoded_;  // buckets, in this step
};

}  // namespace linerate::exec
