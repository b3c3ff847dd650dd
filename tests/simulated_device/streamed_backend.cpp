#include "simulated_device/streamed_backend.hpp"

#include <utility>
#include <vector>

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

using ::c10d::Backend;
using Ranges = std::vector<Range>;
using Pointer = c10::intrusive_ptr<::c10d::Work>;

/// What a collective was enqueued as.
class StreamedWork final : public ::c10d::Work {
 public:
  StreamedWork(int device, int stream, Clock end, std::int64_t ns)
      : device_(device), stream_(stream), end_(std::move(end)), ns_(ns) {}
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void blockCurrentStream() override { synchronize(); }
  void synchronize() override {
    const Lock lock(state(device_).mutex);
    stream_waits(device_, of_thread().streams.at(device_), stream_, end_, ns_);
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }

 private:
  int device_, stream_;
  Clock end_;
  std::int64_t ns_;
};

class Streamed final : public Backend {
 public:
  explicit Streamed(c10::intrusive_ptr<Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  ~Streamed() override {
    if (stream_ < 0) return;
    const Lock lock(state(device_).mutex);
    state(device_).free_inner.push_back(stream_);
  }

  const std::string getBackendName() const override { return "sim"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  bool supportsSplitting() const override { return inner_->supportsSplitting(); }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>& store,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override {
    auto part = inner_->split(store, ranks, options);
    return part ? streamed(std::move(part)) : nullptr;
  }

  Pointer broadcast(std::vector<at::Tensor>& all, const ::c10d::BroadcastOptions& o) override {
    const bool sends = o.rootRank == getRank();
    return each("broadcast", ranges_of(all[0]), sends ? Ranges{} : ranges_of(all[0]), all,
                [&](std::vector<at::Tensor>& seen) { return inner_->broadcast(seen, o); });
  }
  Pointer allreduce(std::vector<at::Tensor>& all, const ::c10d::AllreduceOptions& o) override {
    return each("all_reduce", ranges_of(all[0]), ranges_of(all[0]), all,
                [&](std::vector<at::Tensor>& seen) { return inner_->allreduce(seen, o); });
  }
  Pointer _allgather_base(at::Tensor& all, at::Tensor& mine,
                          const ::c10d::AllgatherOptions& o) override {
    return pair("all_gather", all, mine, [&](at::Tensor& to, at::Tensor& from) {
      return inner_->_allgather_base(to, from, o);
    });
  }
  Pointer _reduce_scatter_base(at::Tensor& mine, at::Tensor& all,
                               const ::c10d::ReduceScatterOptions& o) override {
    return pair("reduce_scatter", mine, all, [&](at::Tensor& to, at::Tensor& from) {
      return inner_->_reduce_scatter_base(to, from, o);
    });
  }
  Pointer alltoall_base(at::Tensor& arrived, at::Tensor& sent, std::vector<std::int64_t>& to_sizes,
                        std::vector<std::int64_t>& from_sizes,
                        const ::c10d::AllToAllOptions& o) override {
    return pair("all_to_all", arrived, sent, [&](at::Tensor& to, at::Tensor& from) {
      return inner_->alltoall_base(to, from, to_sizes, from_sizes, o);
    });
  }
  Pointer barrier(const ::c10d::BarrierOptions& o) override { return inner_->barrier(o); }

 private:
  template <typename Start>
  Pointer pair(const char* name, at::Tensor& to, at::Tensor& from, Start&& start) {
    return each(name, ranges_of(from), ranges_of(to), {to, from},
                [&](std::vector<at::Tensor>& seen) { return start(seen[0], seen[1]); });
  }

  template <typename Start>
  Pointer each(const char* name, const Ranges& reads, const Ranges& writes,
               const std::vector<at::Tensor>& tensors, Start&& start) {
    std::vector<at::Tensor> seen;
    for (const at::Tensor& tensor : tensors) {
      TORCH_CHECK(tensor.is_contiguous(), name, " of a tensor with gaps");
      seen.push_back(seen_by_kernels(tensor));
    }
    if (tensors[0].is_cpu()) return start(seen);
    device_ = tensors[0].device().index();
    enqueue(name, reads, writes);
    start(seen)->wait();
    const Lock lock(state(device_).mutex);
    return c10::make_intrusive<StreamedWork>(device_, stream_, state(device_).order.event(stream_),
                                             state(device_).ns_of(stream_));
  }

  void enqueue(const char* name, const Ranges& reads, const Ranges& writes) {
    State& d = state(device_);
    const Lock lock(d.mutex);
    if (stream_ < 0) stream_ = stream_of_mine(d);
    const int current = of_thread().streams.at(device_);
    d.order.stream_learns(stream_, d.order.event(current));
    d.ns_of(stream_) = std::max(d.ns_of(stream_), d.ns_of(current));
    work(device_, stream_, name, reads, writes, 1);
  }

  static int stream_of_mine(State& d) {
    if (d.free_inner.empty()) return kFirstInner + d.inner++;
    const int stream = d.free_inner.back();
    d.free_inner.pop_back();
    return stream;
  }

  const c10::intrusive_ptr<Backend> inner_;
  int device_ = -1, stream_ = -1;
};

}  // namespace

c10::intrusive_ptr<Backend> streamed(c10::intrusive_ptr<Backend> inner) {
  return c10::make_intrusive<Streamed>(std::move(inner));
}

}  // namespace linerate::simulated
