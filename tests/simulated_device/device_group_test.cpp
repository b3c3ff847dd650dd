// What is asked of a process group that exchanges a device's memory: of a back end that is made up,
// with what NCCL's does to its options.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "linerate/comm/c10d/tensor_group.hpp"
#include "simulated_device/simulated_device.hpp"

namespace linerate::comm {
namespace {

using GroupWork = c10::intrusive_ptr<::c10d::Work>;

struct GroupCalls {
  int waits = 0, synchronized = 0;
};

/// As under TORCH_NCCL_BLOCKING_WAIT: who calls wait() keeps the host.
struct AskedWork final : ::c10d::Work {
  explicit AskedWork(GroupCalls& counts) : asked(counts) {}
  bool wait(std::chrono::milliseconds) override { return ++asked.waits > 0; }
  void synchronize() override { ++asked.synchronized; }
  GroupCalls& asked;
};

struct AskedBackend final : ::c10d::Backend {
  /// The members of NCCL's, in its order.
  struct OwnOptions final : Options {
    OwnOptions() : Options("asked") {}
    bool is_high_priority_stream = false;
    std::array<std::int64_t, 14> config{};
    c10::intrusive_ptr<AskedBackend> split_from;
    int split_color = -2;
  };

  AskedBackend(int rank, std::string made_up_name)
      : Backend(rank, 2), name(std::move(made_up_name)) {}
  const std::string getBackendName() const override { return name; }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return own; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<::c10d::Store>&,
                                    const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override {
    const auto nccls = c10::dynamic_intrusive_pointer_cast<OwnOptions>(options);
    split_again = nccls->split_from.defined() || nccls->split_color != -2;
    nccls->split_from = c10::intrusive_ptr<AskedBackend>::unsafe_reclaim_from_nonowning(this);
    nccls->split_color = 17;
    nccls->global_ranks_in_group.assign(ranks.begin(), ranks.end());
    return c10::make_intrusive<AskedBackend>(0, name);
  }
  GroupWork allreduce(std::vector<at::Tensor>&, const ::c10d::AllreduceOptions&) override {
    return c10::make_intrusive<AskedWork>(asked);
  }
  GroupWork broadcast(std::vector<at::Tensor>&, const ::c10d::BroadcastOptions&) override {
    return c10::make_intrusive<AskedWork>(asked);
  }

  std::string name;
  GroupCalls asked;
  bool split_again = false;
  c10::intrusive_ptr<OwnOptions> own = c10::make_intrusive<OwnOptions>();
};

/// Rank 0 of two, of whose back end only its own part is asked.
class DeviceGroup : public testing::Test {
 public:
  void TearDown() override {
    if (group) ::c10d::unregister_process_group("asked");
  }
  std::unique_ptr<TensorGroup> make(c10::Device device, const std::string& name = "asked") {
    TearDown();
    backend = c10::make_intrusive<AskedBackend>(0, name);
    group =
        c10::make_intrusive<::c10d::ProcessGroup>(c10::make_intrusive<::c10d::HashStore>(), 0, 2);
    group->setBackend(device.type(), ::c10d::ProcessGroup::BackendType::CUSTOM, backend);
    ::c10d::register_process_group("asked", group);
    return make_tensor_group("asked", device);
  }
  c10::intrusive_ptr<AskedBackend> backend;
  c10::intrusive_ptr<::c10d::ProcessGroup> group;
};

TEST_F(DeviceGroup, StreamsWaitOnADeviceAndTheHostOnTheCpu) {
  const auto device = simulated::device(0);
  const auto there = make(device);
  there->all_reduce(at::zeros({4}, device), Reduce::sum, "sum");
  there->broadcast(at::zeros({4}, device), 0, "broadcast");
  EXPECT_EQ(backend->asked.waits, 0);
  EXPECT_EQ(backend->asked.synchronized, 2);
  const auto here = make(c10::kCPU);
  here->all_reduce(at::zeros({4}), Reduce::sum, "sum");
  EXPECT_EQ(backend->asked.waits, 1);
  EXPECT_EQ(backend->asked.synchronized, 0);
}

/// Its collectives are over when the host has done them.
TEST_F(DeviceGroup, TheHostWaitsForGlooOnADeviceToo) {
  const auto device = simulated::device(0);
  const auto there = make(device, "gloo");
  there->all_reduce(at::zeros({4}, device), Reduce::sum, "sum");
  EXPECT_EQ(backend->asked.waits, 1);
}

TEST_F(DeviceGroup, APartLeavesTheOptionsAsTheyWere) {
  const auto whole = make(c10::kCPU);
  backend->own->global_ranks_in_group = {4, 6};
  const auto references = backend.use_count();
  for (int part = 0; part < 2; ++part) {
    EXPECT_TRUE(whole->part({0}, "a part"));
    EXPECT_FALSE(backend->split_again) << "part " << part;
    EXPECT_FALSE(backend->own->split_from.defined());
    EXPECT_EQ(backend->own->split_color, -2);
    EXPECT_THAT(backend->own->global_ranks_in_group, testing::ElementsAre(4, 6));
    EXPECT_EQ(backend->own->group_name, "");
    EXPECT_EQ(backend.use_count(), references);  // else it would never end
  }
}

}  // namespace
}  // namespace linerate::comm
