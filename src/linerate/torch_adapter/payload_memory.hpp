// The memory of a step's payloads: each bucket one array, each gradient a view of it. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/keep_memory.hpp"
#include "linerate/exec/step_machine.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"

namespace linerate::torch_adapter {

/// In which order a slot holds its gradient's elements.
enum class SlotOrder {
  memory,   // the parameter's: what is summed may be read in place
  logical,  // row by row, whatever the parameter's strides: compressors see matrices
};

/// The arrays of a step. A bucket is one array, and each gradient's slot is a view of it, so a
/// collective moves a bucket without a copy. After the step .grad is that view, which now holds the
/// mean.
///
/// A gradient gets into its slot in one of three ways.
/// - on the host, add() multiplies and copies it in one pass
/// - on the host, if the communicator reads pieces, add() only notes it, and the sum reads it in
///   place
/// - on a device, note() notes it, and fill() copies all gradients of a bucket by a few operators
///
/// Shapes: gradients g[n_i], i = position in the plan -> bucket[sum n_i, flags if they ride, zeros
/// up to `padded`] -> encoded payload, for a cast. Flags [gradients + doc::kStepFlags], buffers
/// u8[bytes], samples f64[1]. All where the parameters lie.
class PayloadMemory : public exec::Payloads {
 public:
  /// `reads_pieces`: of the communicator that sums the buckets.
  explicit PayloadMemory(bool reads_pieces) : reads_pieces_(reads_pieces) {}
  /// Called before arrays are freed that a device may still use.
  void set_before_freeing(std::function<void()> wait) { before_freeing_ = std::move(wait); }

  /// Makes the payloads of a variant; parameter_at[i] is the parameter at position i of the plan,
  /// whose shape the gradient's slot has. Buckets that are as before stay where they are. Gradients
  /// that are views of an earlier layout keep that layout's memory alive.
  void lay_out(const doc::TaskGraph& graph, const std::vector<const Parameter*>& parameter_at);
  /// Forgets all arrays, because another plan's positions mean other parameters.
  void forget(SlotOrder order) {
    order_ = order;
    graph_ = nullptr, members_.clear(), buckets_.clear(), sources_.clear(), others_.clear();
    fillings_.clear();
  }

  /// Whether a gradient can go into its slot: dense, on its device, of the slot's shape.
  bool fits(std::int32_t position, const at::Tensor& gradient) const;
  /// Adds scale * gradient, which fits, to the bucket's sum. Undefined: zeros. If the sum reads the
  /// gradient in place, it is only noted, and the caller leaves it unchanged until release(). Else
  /// it is written to the slot in one pass, or is the slot itself, which is scaled.
  void add(std::int32_t position, const at::Tensor& gradient, double scale);
  /// Adds weight * more, f32[elements] row by row, to what was put into the slot in this step.
  void add_more(std::int32_t position, const at::Tensor& more, double weight);
  /// Forgets the gradients that were noted.
  void release() { sources_.assign(slots_.size(), {}), fillings_.clear(); }

  // If work is enqueued, gradients are only noted. fill() puts them into the payload by a few
  // operators, in the stream of the task that takes the payload: its collective or its encode.

  /// Notes scale * gradient for its slot. The gradient fits and is left unchanged until fill() has
  /// come to it. Undefined: zeros; the slot itself: it stays as it is. The scale, a scalar tensor,
  /// is the same for the whole bucket, and only the device may know it; undefined: 1.
  void note(std::int32_t position, const at::Tensor& gradient, const at::Tensor& scale);
  /// Notes what add_more() would add; after note().
  void note_more(std::int32_t position, const at::Tensor& more, double weight);
  /// Notes copies: into[k], views of the payload, are to become from[k], which have their type and
  /// strides.
  void note_copies(std::int32_t payload, std::vector<at::Tensor> into,
                   std::vector<at::Tensor> from);
  /// Enqueues what was noted down for the payload, once; nothing: does nothing.
  void fill(std::int32_t payload);

  /// Whether any gradient that has arrived is not finite: a scalar bool tensor where the buckets
  /// are.
  at::Tensor is_infinite() const;
  /// Sets all gradients to zero if the scalar bool tensor `none` is true.
  void drop_if(const at::Tensor& none);
  /// The slot in the shape of its parameter; in its strides as well, if slots have the order of
  /// memory.
  const at::Tensor& view(std::int32_t position) const { return slots_[to_index(position)]; }
  bool is_view(std::int32_t position, const at::Tensor& gradient) const;
  /// Whether this step's variant sends the gradient's bucket without encoding it.
  bool is_sent_as_is(std::int32_t position) const { return is_sent_as_is_[to_index(position)]; }

  /// encode() casts a bucket's values to the type of its encoded payload; decode() casts them back.
  /// With a number of ranks, finite values are cut off at the largest magnitude whose sum over the
  /// ranks fits the type. `may_read`: whether the host may look first if there are such values.
  void encode(std::int32_t bucket, std::optional<int> ranks, bool may_read);
  void decode(std::int32_t bucket);

  /// A payload of the step's variant, [padded].
  const at::Tensor& values(std::int32_t payload) const { return values_.at(to_index(payload)); }
  /// The variant's one payload of this content.
  at::Tensor& only(doc::Content content);
  /// The flags, in whatever payload and type they travel: [gradients + doc::kStepFlags].
  void write_flags(const std::vector<float>& flags);
  void read_flags(std::vector<float>& flags);

  comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override;
  std::vector<comm::Piece> pieces(const doc::TaskGraph& graph, std::int32_t payload) override;
  std::shared_ptr<const void> hold(const doc::TaskGraph& graph, std::int32_t payload) override;

 private:
  /// A gradient that the sum reads in place; undefined: the slot's own values count.
  struct Source {
    at::Tensor gradient;
    double scale = 1;
  };

  /// The noted copies into one payload, for fill().
  struct Filling {
    std::vector<at::Tensor> into, from;                       // of one type, alike in strides
    std::vector<std::pair<at::Tensor, at::Tensor>> converts;  // into, from: others
    std::vector<at::Tensor> zeros;
    at::Tensor scale;  // of all; undefined: 1
    struct More {
      at::Tensor slot, values;
      double weight;
    };
    std::vector<More> more;  // added then
  };

  void make_buckets(const doc::TaskGraph& graph, const std::vector<const Parameter*>& parameter_at);
  /// The payload that encodes a bucket, -1 if none does.
  std::int32_t encoded_of(std::int32_t bucket) const;
  at::Tensor& encoded_values(std::int32_t bucket);
  bool is_summed_from_afar(std::int32_t position, const at::Tensor& gradient) const;
  bool has_sources(std::int32_t payload) const;
  /// Calls `visit(first)` with a pointer to the first flag in its own type. (A tensor of them would
  /// cost more than the flags themselves, in every step.)
  template <typename Visit>
  void visit_flags(std::size_t count, Visit&& visit);

  bool reads_pieces_;
  std::function<void()> before_freeing_ = [] {};
  SlotOrder order_ = SlotOrder::memory;
  CollapsedPages pages_;  // of gradients that others read
  const doc::TaskGraph* graph_ = nullptr;
  std::vector<doc::Payload> buckets_;  // the buckets, whose arrays are the first in values_
  std::vector<std::int32_t> members_;
  std::vector<at::Tensor> values_;                                   // by payload
  std::map<const doc::TaskGraph*, std::vector<at::Tensor>> others_;  // after the buckets'
  std::vector<at::Tensor> slots_;                                    // by position
  std::vector<std::int32_t> bucket_of_;                              // by position
  std::vector<Source> sources_;                                      // by position
  std::map<std::int32_t, Filling> fillings_;                         // by payload
  std::vector<bool> is_sent_as_is_;  // by position: its bucket is not encoded
};

// Whether all means of a step are finite, found out before they are gathered. Private to
// torch_adapter.

/// Whether an element of any array is infinite or a NaN: a scalar bool tensor, where the arrays
/// are. There are one or more arrays, of any real types. Reads each of them once, by one operator.
at::Tensor any_infinite(const std::vector<at::Tensor>& arrays);

}  // namespace linerate::torch_adapter
