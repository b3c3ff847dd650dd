// topk: the k largest magnitudes, exactly. Aji & Heafield 2017 (arXiv 1704.05021) with the local
// error feedback of Karimireddy et al. 2019.
// v[n] f32 -> payload of k f32 values, k u32 indices; k = max(1, floor(density n)).
#include "linerate/compress/kernel/largest.hpp"
#include "linerate/compress/method/density.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/registry.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

class TopKCodec : public Codec {
 public:
  explicit TopKCodec(std::int64_t k) : k_(to_index(k)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    add_and_select_largest(input, k_, sent_);
    clear_sent(sent_, input.residual);
    return write_entries(sent_, payload);
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    decode_entries(arrived, k_, mean, "topk");
  }

 private:
  std::size_t k_;
  Selection sent_;
};

class TopK : public Compressor {
 public:
  explicit TopK(double density) : density_(density) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    const std::int64_t bytes = kEntryBytes * entries_of(density_, shape.elements);
    return one_round_if_smaller(shape, {Combine::gather, DType::u8, bytes});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<TopKCodec>(entries_of(density_, shape.elements));
  }
  Residual residual() const override { return Residual::needed; }

 private:
  double density_;
};

std::unique_ptr<const Compressor> make_topk(doc::OptionReader& options) {
  return std::make_unique<TopK>(read_density(options));
}

}  // namespace

CompressorLine compressor_topk() {
  return {"topk", make_topk, "The largest magnitudes of a tensor, exactly: topk(density=0.01).",
          "Aji & Heafield 2017 (arXiv 1704.05021)"};
}

}  // namespace linerate::compress
