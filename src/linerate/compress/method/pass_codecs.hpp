// Codecs of one pass each way, over either back end, that keep nothing but the residual. They send
// codes on grids, powers of two, or f32 as they are.
#pragma once

#include "linerate/compress/method/grid_format.hpp"
#include "linerate/compress/method/power_format.hpp"

namespace linerate::compress {

template <class Ops>
class GridCodec final : public Ops::Codec {
 public:
  GridCodec(const typename Ops::Making& making, const GridFormat& format)
      : Ops::Codec(making), format_(format) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_grid_codes(tensors, format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    this->note_damage(Ops::average_grid_codes(tensors, format_));
  }

 private:
  GridFormat format_;
};

template <class Ops>
class PowerCodec final : public Ops::Codec {
 public:
  PowerCodec(const typename Ops::Making& making, PowerFormat format)
      : Ops::Codec(making), format_(format) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    Ops::send_powers(tensors, format_);
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    this->note_damage(Ops::average_powers(tensors, format_));
  }

 private:
  PowerFormat format_;
};

/// Used in place of another codec if compression does not pay. Payloads are gathered or summed.
template <class Ops>
class DenseCodec final : public Ops::Codec {
 public:
  explicit DenseCodec(const typename Ops::Making& making) : Ops::Codec(making) {}

  void encode_all(int, const typename Ops::Sending& tensors) override { Ops::send_values(tensors); }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    this->note_damage(Ops::average_values(tensors, "dense"));
  }
};

}  // namespace linerate::compress
