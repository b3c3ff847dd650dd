// topk: the k largest magnitudes, exactly. Aji & Heafield 2017 (arXiv 1704.05021) with the local
// error feedback of Karimireddy et al. 2019.
// v[n] f32 -> payload of k f32 values, k u32 indices; k = max(1, floor(density n)).
#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/registry.hpp"

namespace linerate::compress {
namespace {

std::unique_ptr<const Compressor> make_topk(doc::OptionReader& options) {
  return largest_entries(read_density(options), 0);
}

}  // namespace

std::unique_ptr<const Compressor> largest_entries(double density, int halvings) {
  return built_in({.rounds = one_round([density](std::int64_t n) {
                     return gathered(kEntryBytes * entries_of(density, n));
                   }),
                   .choice = CodecWith<TopKCodec, double, int>{{density, halvings}}});
}

HostOps::Chosen HostOps::choose_largest(const Sending& tensor, Picking& room,
                                        const EntryFormat& format) {
  const auto n = static_cast<std::int64_t>(tensor.elements());
  add_and_select_largest(tensor, to_index(format.most_of(n)), room.sent);
  return room;
}

CompressorLine compressor_topk() {
  return {"topk", make_topk, "The largest magnitudes of a tensor, exactly: topk(density=0.01).",
          "Aji & Heafield 2017 (arXiv 1704.05021)"};
}

}  // namespace linerate::compress
