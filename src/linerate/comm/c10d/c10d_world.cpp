// The one file that calls c10d for messages and the store. It wraps plain memory as a tensor that
// does not own it, and c10d's Work and Store as C10dMessage and SharedStore.
//
// c10d's own collectives are not used on host memory. linerate's schedules send single messages by
// send() and receive(). So measured and predicted collectives are the same code as over MPI.
#include "linerate/comm/c10d/c10d_world.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <utility>

#include "linerate/comm/c10d/c10d_channel.hpp"
#include "linerate/comm/c10d/process_group.hpp"
#include "linerate/comm/queued_communicator.hpp"
#include "linerate/comm/timeout.hpp"
#include "linerate/core/error.hpp"

namespace linerate::comm {
namespace {

std::vector<at::Tensor> bytes_of(const void* data, std::size_t bytes) {
  return {at::from_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)}, at::kByte)};
}

class GroupMessage final : public C10dMessage {
 public:
  explicit GroupMessage(c10::intrusive_ptr<::c10d::Work> work) : work_(std::move(work)) {}
  bool wait() override { return work_->wait(); }
  void abort() override {
    try {
      work_->abort();
    } catch (const std::exception&) {  // a back end that cannot: it ends with its peer
    }
  }

 private:
  c10::intrusive_ptr<::c10d::Work> work_;
};

std::vector<std::uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

class GroupStore final : public SharedStore {
 public:
  explicit GroupStore(c10::intrusive_ptr<::c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override {
    store_->set(key, to_bytes(value));
  }
  std::string get(const std::string& key) override {
    const std::vector<std::uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  }
  bool has(const std::string& key) override { return store_->check({key}); }
  std::string set_first(const std::string& key, const std::string& value) override {
    const std::vector<std::uint8_t> now = store_->compareSet(key, {}, to_bytes(value));
    return {now.begin(), now.end()};
  }

 private:
  c10::intrusive_ptr<::c10d::Store> store_;
};

class ProcessGroupMessages final : public C10dGroup {
 public:
  explicit ProcessGroupMessages(c10::intrusive_ptr<::c10d::ProcessGroup> group)
      : group_(std::move(group)) {
    try {
      backend_ = group_->getBackend(c10::DeviceType::CPU)->getBackendName();
    } catch (const std::exception&) {
      throw UsageError(
          fmt::format("process group \"{}\" has no back end for CPU memory; make one next to it: "
                      "torch.distributed.new_group(backend=\"gloo\")",
                      name()));
    }
    if (!group_->getStore())
      throw UsageError(fmt::format(
          "process group \"{}\" has no store, which ranks need to tell each other that they are "
          "alive; make it with torch.distributed.init_process_group() or new_group()",
          name()));
  }

  std::string name() const override { return group_->getGroupName(); }
  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }
  std::string backend() const override { return backend_; }
  std::unique_ptr<C10dMessage> send(int peer, const void* data, std::size_t bytes,
                                    int tag) override {
    const at::DisableRecordFunctionGuard unseen;  // by profilers, and by weight gates
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> memory = bytes_of(data, bytes);
    return std::make_unique<GroupMessage>(group_->send(memory, peer, tag));
  }
  std::unique_ptr<C10dMessage> receive(int peer, void* data, std::size_t bytes, int tag) override {
    const at::DisableRecordFunctionGuard unseen;
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> memory = bytes_of(data, bytes);
    return std::make_unique<GroupMessage>(group_->recv(memory, peer, tag));
  }
  std::unique_ptr<SharedStore> store(const std::string& prefix) override {
    return std::make_unique<GroupStore>(
        c10::make_intrusive<::c10d::PrefixStore>(prefix, group_->getStore()->clone()));
  }

 private:
  c10::intrusive_ptr<::c10d::ProcessGroup> group_;
  std::string backend_;
};

}  // namespace

std::unique_ptr<Communicator> make_world_of_group(const std::string& group_name,
                                                  const CommunicatorOptions& options) {
  const Clock::duration timeout = clock_time(options.timeout, "process group: timeout");
  const Clock::duration start = start_time(options.start_timeout, timeout, "process group");
  auto group = std::make_unique<ProcessGroupMessages>(::c10d::resolve_process_group(group_name));
  return std::make_unique<QueuedCommunicator>(
      std::make_unique<C10dChannel>(std::move(group), timeout, start), options);
}

}  // namespace linerate::comm
