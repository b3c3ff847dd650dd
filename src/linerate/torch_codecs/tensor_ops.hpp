// The back end of codecs that works where tensors lie: all tensors of a bucket by one operator, or
// by one of ATen's foreach ones for 64 of them. The other back end is compress/host_ops.hpp.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/half.hpp"
#include "linerate/compress/method/grid_format.hpp"
#include "linerate/compress/method/power_format.hpp"
#include "linerate/compress/method/sign_format.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

struct TensorOps {
  class Codec;
  struct Room {};
  using Flag = at::Tensor;                 // bool, of no dimensions; undefined: no
  using Damage = at::Tensor;               // the same, of what arrived
  using Values = std::vector<at::Tensor>;  // f32, by tensor
  using KeptValues = KeptTensor;           // of one tensor, from step to step
  using Making = torch_codecs::Making;

  /// Where a tensor is among its bucket's elements.
  struct Place {
    std::int64_t first = 0, elements = 0;
  };
  /// Its tensors in an array that is laid out as the bucket.
  static std::vector<at::Tensor> parts_of(const at::Tensor& array,
                                          const std::vector<Place>& places);

  /// As HostOps has them; arrays have the whole bucket, which may have more than these tensors.
  struct Sending {
    at::Tensor values;                 // f32: gradients
    at::Tensor residual;               // f32: as the last step left it; undefined: none is kept
    at::Tensor next;                   // f32, written: as this step leaves it; may be `residual`
    std::vector<Place> places;         // of the tensors
    std::vector<at::Tensor> payloads;  // u8, written: of each tensor the round's bytes
    std::vector<compress::Keys> keys;
    std::vector<Codec*> codecs;
    int of_ranks = 1;
    int phase = -1;
    std::optional<float> scale = {};  // Input's loss_scale

    int ranks() const { return of_ranks; }
    int phase_of_step() const { return phase; }
    std::optional<float> loss_scale() const { return scale; }
    bool keeps_residual() const { return next.defined(); }
  };
  struct Arriving {
    at::Tensor means;  // f32, written where the tensors are
    std::vector<Place> places;
    std::vector<TensorArrived> arrived;  // by tensor
    std::vector<Codec*> codecs;
  };

  /// A codec that codes all tensors of a bucket in a call. The first one of them does it; what a
  /// step keeps between its calls is its.
  class Codec : public TensorCodec {
   public:
    using TensorCodec::TensorCodec;

    /// As TensorCodec's encode() and decode(), of all tensors.
    void encode_bucket(int round, const Sending& tensors);
    void decode_bucket(int round, const Arriving& tensors);

    virtual void encode_all(int round, const Sending& tensors) = 0;
    virtual void decode_all(int round, const Arriving& tensors) = 0;
    virtual Flag is_beyond() const { return {}; }

    at::Tensor overflowed_there() const final { return is_beyond(); }
    /// Its payload of this round has no more than these bytes.
    void sends(std::int64_t bytes) { sent_ = bytes; }

   protected:
    void note_damage(const Damage& damage) {
      if (damage.defined()) damage_if(damage);
    }

   private:
    TensorPayload do_encode(int round, const TensorInput& input) final;
    void do_decode(int round, const TensorArrived& arrived, const at::Tensor& mean) final;

    std::int64_t sent_ = -1;  // all
  };

  /// next = residual + gradients, and no more than the residual where no tensor of these is.
  static void add_residuals(const Sending& tensors);
  /// v: views of `next` after that, or of the gradients.
  static Values corrected(const Sending& tensors);

  static void narrow(const Sending& tensors, DType half, float share);
  static Flag narrow_and_keep(const Sending& tensors, DType half, const compress::HalfScale& scale);
  static void widen(const Arriving& tensors, DType half, float by);

  static KeptValues kept_zeros(const Making& making, std::int64_t elements) {
    return KeptValues(
        at::zeros({elements}, at::TensorOptions().device(making.device).dtype(at::kFloat)));
  }
  static compress::StateField field(std::string name, compress::Passing passing, KeptValues& kept) {
    return state_field(std::move(name), passing, kept);
  }
  static Values gradients(const Sending& tensors);
  static Values means(const Arriving& tensors);
  static void set_means(const Arriving& tensors, const Values& values);
  static Values average(const std::vector<KeptValues*>& kept, const Values& x, double beta);
  static Values averaged(const std::vector<KeptValues*>& kept, const std::vector<Room*>& rooms,
                         const Values& x, double beta);
  static void keep(const std::vector<KeptValues*>& kept, const Values& values);

  static void send_values(const Sending& tensors);
  static Damage read_finite_means(const Arriving& tensors, std::string_view method);
  static void send_signs(const Sending& tensors, const Values& values);
  static Damage vote(const Arriving& tensors, std::string_view method);
  static void send_scaled_signs(const Sending& tensors, const Values& x,
                                const compress::SignFormat& format);
  static Damage average_scaled_signs(const Arriving& tensors, const compress::SignFormat& format);

  static void send_grid_codes(const Sending& tensors, const compress::GridFormat& format);
  static Damage average_grid_codes(const Arriving& tensors, const compress::GridFormat& format);
  static void send_powers(const Sending& tensors, compress::PowerFormat format);
  static Damage average_powers(const Arriving& tensors, compress::PowerFormat format);

  class LowRank;
};

/// As HostOps has it. Matrices of one shape lie one after the other, and are multiplied together.
class TensorOps::LowRank {
 public:
  void begin(const std::vector<compress::FactorSize*>& sizes);
  void take(compress::Side side, const std::vector<KeptValues*>& kept);
  void leave(compress::Side side, const std::vector<KeptValues*>& kept);
  void make_unit(compress::Side side, const Sending& tensors);
  void orthonormalise(compress::Side side);
  void redraw_vanished(compress::Side side);
  void orthonormalise_fresh(compress::Side side, const Sending& tensors);
  void send(const Sending& tensors, const compress::FactorPass& pass);
  void receive(compress::Side side, const Arriving& tensors, std::string_view method,
               compress::Taken taken);
  void write_products(const Arriving& tensors);

 private:
  struct Group {
    compress::FactorSize size;
    std::int64_t first = 0, count = 0;  // of order_
    at::Tensor matrices;                // f32[count][rows][columns] of the step at hand
  };

  at::Tensor& factor(compress::Side side) { return side == compress::Side::left ? left_ : right_; }
  const at::Tensor& factor(compress::Side side) const {
    return side == compress::Side::left ? left_ : right_;
  }
  std::int64_t rank() const { return groups_.front().size.rank; }  // of all, as all are worth it
  const Group& group_of(std::int64_t k) const;
  Values in_order(const Values& by_tensor) const;
  static Values each_of(const Values& by_group);
  at::Tensor joined(compress::Side side, const Values& factors) const;
  at::Tensor of_group(const Group& group, compress::Side side) const;
  at::Tensor drawn(compress::Side side, const Sending& tensors, std::int64_t vectors) const;
  void make_matrices(const Sending& tensors);
  void keep_rest(const Sending& tensors, compress::Side side, const Values& factors);

  std::vector<std::size_t> order_;  // tensors, those of one shape one after the other
  std::vector<Group> groups_;
  at::Tensor left_, right_;  // f32[tensors][rank][longest]
  // What replaces vectors that vanish, and whether they did, bool[tensors][rank][1].
  at::Tensor fresh_, vanished_;
};

}  // namespace linerate::torch_codecs
