#include "linerate/calibrate/collective_calls.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::calibrate {
namespace {

constexpr std::int64_t kElement = sizeof(float);

}  // namespace

CollectiveCalls::CollectiveCalls(comm::Communicator& communicator, std::int64_t largest_bytes)
    : communicator_(communicator) {
  const std::int64_t floats = whole_blocks(largest_bytes) / kElement;
  whole_.assign(static_cast<std::size_t>(floats), 0.0f);
  part_.assign(static_cast<std::size_t>(floats / communicator.size()), 0.0f);
}

std::int64_t CollectiveCalls::whole_blocks(std::int64_t bytes) const {
  const std::int64_t block = kElement * communicator_.size();
  return (bytes + block - 1) / block * block;
}

comm::WorkPtr CollectiveCalls::submit(Collective kind, std::int64_t bytes) {
  const Elements whole{bytes / kElement}, part{bytes / kElement / communicator_.size()};
  const comm::Buffer all{whole_.data(), whole, DType::f32}, own{part_.data(), part, DType::f32};
  const comm::ConstBuffer from_all{all.data, all.count, all.dtype};
  const comm::ConstBuffer from_own{own.data, own.count, own.dtype};
  switch (kind) {
    case Collective::all_reduce:
      return communicator_.all_reduce(all, comm::Reduce::sum, "probe");
    case Collective::reduce_scatter:
      return communicator_.reduce_scatter(from_all, own, comm::Reduce::sum, "probe");
    case Collective::all_gather:
      return communicator_.all_gather(from_own, all, "probe");
    case Collective::broadcast:
      return communicator_.broadcast(all, 0, "probe");
    default:
      throw UsageError(fmt::format(
          "probe: {} is not measured; expected all-reduce, reduce-scatter, all-gather or broadcast",
          name_of(kind)));
  }
}

}  // namespace linerate::calibrate
