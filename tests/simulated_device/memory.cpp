#include "simulated_device/memory.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

constexpr std::size_t kArena = std::size_t{1} << 36;      // of all devices; sparse
constexpr std::size_t kPoisoned = std::size_t{64} << 10;  // bytes of new memory at most
constexpr std::int64_t kMostRuns = 4096;

/// All devices' memory, a part for each.
struct Arena {
  std::byte *tensors, *kernels;
  std::array<std::size_t, kDevices> used{};

  Arena() {
    const int file = memfd_create("simulated device", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, kArena) == 0, "no memory for simulated devices");
    tensors = mapped(file, PROT_NONE);
    kernels = mapped(file, PROT_READ | PROT_WRITE);
    for (std::size_t i = 0; i < kDevices; ++i) used[i] = i * (kArena / kDevices);
  }
  std::size_t more(std::size_t device, std::size_t bytes) {
    const std::size_t begin = used.at(device);
    used[device] += bytes;
    TORCH_CHECK(used[device] <= (device + 1) * (kArena / kDevices),
                "a simulated device's memory is full");
    return begin;
  }

 private:
  static std::byte* mapped(int file, int access) {
    void* const at = mmap(nullptr, kArena, access, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(at != MAP_FAILED, "no address space for simulated devices");
    return static_cast<std::byte*>(at);
  }
};

Arena& arena() {
  static auto* const all = new Arena;
  return *all;
}

bool is_between(const void* pointer, const std::byte* begin) {
  const auto* const at = static_cast<const std::byte*>(pointer);
  return at >= begin && at < begin + kArena;
}

/// What a DataPtr of a device's memory has as its context.
struct Block {
  std::size_t begin, bytes;
  int device, stream;
  bool is_kept = false;
};

/// Of the block that begins somewhere, for words.
struct Life {
  int stream;
  std::string made, freed, made_before;
};
std::map<std::size_t, Life>& lives(int device) {
  static auto* const all = new std::array<std::map<std::size_t, Life>, kDevices>;
  return all->at(static_cast<std::size_t>(device));
}

void release_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  State& d = state(block->device);
  const Lock lock(d.mutex);
  lives(block->device)[block->begin].freed = of_thread().task();
  if (!block->is_kept) d.pools.give_back(block->stream, block->begin, block->bytes);
}
void release_nothing(void*) {}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const int device = of_thread().device;
    const c10::Device where = simulated::device(device);
    if (bytes == 0) return {nullptr, nullptr, &release_nothing, where};
    State& d = state(device);
    const Lock lock(d.mutex);
    const int stream = of_thread().streams[device];
    const auto found = d.pools.take(stream, bytes);
    const std::size_t begin = found ? *found : arena().more(device, StreamPools::rounded(bytes));
    Life& life = lives(device)[begin];
    life = {stream, of_thread().task(), life.freed, life.made};
    std::memset(arena().kernels + begin, 0xA5, std::min(bytes, kPoisoned));
    return {arena().tensors + begin, new Block{begin, bytes, device, stream}, &release_block,
            where};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(for_kernels(to), for_kernels(from), bytes);
  }
};

// ---- pinned memory ----

struct Pinned {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> bytes;  // by beginning
};
Pinned& pinned() {
  static auto* const all = new Pinned;
  return *all;
}
void release_pinned(void* memory) {
  {
    const std::lock_guard lock(pinned().mutex);
    pinned().bytes.erase(static_cast<std::byte*>(memory));
  }
  std::free(memory);
}

/// A late copy holds its tensor, so that nothing comes to memory that was freed.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const memory = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
    const std::lock_guard lock(pinned().mutex);
    pinned().bytes[static_cast<std::byte*>(memory)] = std::max<std::size_t>(bytes, 1);
    return {memory, memory, &release_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

DeviceAllocator the_device_allocator;
PinnedAllocator the_pinned_allocator;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &the_device_allocator)

}  // namespace

bool is_device_memory(const void* pointer) { return is_between(pointer, arena().tensors); }

void* for_kernels(const void* pointer) {
  if (!is_device_memory(pointer)) return const_cast<void*>(pointer);
  return arena().kernels + (static_cast<const std::byte*>(pointer) - arena().tensors);
}

std::byte* as_tensors_have_it(const void* pointer) {
  if (!is_between(pointer, arena().kernels)) return nullptr;
  return arena().tensors + (static_cast<const std::byte*>(pointer) - arena().kernels);
}

/// Dims in the order of memory: the first ones that have no gaps make a run, the others say where
/// runs begin.
std::vector<Range> ranges_of(const at::Tensor& t) {
  if (!t.defined() || !t.has_storage() || t.numel() == 0) return {};
  if (!is_device_memory(t.const_data_ptr())) return {};
  const std::size_t item = t.itemsize();
  const std::size_t first = static_cast<const std::byte*>(t.const_data_ptr()) - arena().tensors;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::int64_t i = 0; i < t.dim(); ++i)
    if (t.size(i) > 1 && t.stride(i) != 0) dims.emplace_back(t.stride(i), t.size(i));
  std::sort(dims.begin(), dims.end());
  std::size_t inner = 0;
  std::int64_t run = 1;
  while (inner < dims.size() && dims[inner].first == run) run *= dims[inner++].second;
  std::int64_t runs = 1, end = run;
  for (std::size_t i = inner; i < dims.size(); ++i) {
    runs *= dims[i].second;
    end += (dims[i].second - 1) * dims[i].first;
  }
  if (runs > kMostRuns) return {{first, first + end * item}};
  std::vector<Range> ranges;
  for (std::int64_t r = 0; r < runs; ++r) {
    std::int64_t rest = r, at = 0;
    for (std::size_t i = inner; i < dims.size(); ++i) {
      at += rest % dims[i].second * dims[i].first;
      rest /= dims[i].second;
    }
    ranges.push_back({first + at * item, first + (at + run) * item});
  }
  return ranges;
}

at::Tensor seen_by_kernels(const at::Tensor& t) {
  if (!t.defined() || !t.device().is_privateuseone()) return t;
  const auto options = t.options().device(at::kCPU).requires_grad(false);
  if (t.numel() == 0) return at::empty_strided(t.sizes(), t.strides(), options);
  at::Tensor seen = at::from_blob(for_kernels(t.const_data_ptr()), t.sizes(), t.strides(), options);
  if (t.is_neg()) seen = seen._neg_view();
  if (t.is_conj()) seen = seen.conj();
  if (t.unsafeGetTensorImpl()->is_wrapped_number())
    seen.unsafeGetTensorImpl()->set_wrapped_number(true);
  return seen;
}

c10::Allocator& device_allocator() { return the_device_allocator; }
c10::Allocator& pinned_allocator() { return the_pinned_allocator; }

bool is_pinned(const void* pointer) {
  const auto* const at = static_cast<const std::byte*>(pointer);
  const std::lock_guard lock(pinned().mutex);
  auto next = pinned().bytes.upper_bound(at);
  if (next == pinned().bytes.begin()) return false;
  --next;
  return at < next->first + next->second;
}

std::string life_of(int device, std::size_t byte) {
  auto next = lives(device).upper_bound(byte);
  if (next == lives(device).begin()) return "memory of nobody";
  const Life& life = std::prev(next)->second;
  const auto task = [](const std::string& name) { return "[" + name + "]"; };
  return "memory of stream " + std::to_string(life.stream) + " made in " + task(life.made) +
         ", before in " + task(life.made_before) + " and last freed in " + task(life.freed);
}

void keep_for_ever(const c10::DataPtr& memory) {
  if (memory.get_deleter() == &release_block)
    static_cast<Block*>(memory.get_context())->is_kept = true;
}

namespace {

// ---- operators that make tensors and views, and touch no memory

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> where, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(where.value_or(device(of_thread().device)));
  return at::detail::empty_generic(sizes, &device_allocator(), kKeys, c10::dtype_or_default(type),
                                   format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device> where, std::optional<bool>) {
  const c10::DeviceGuard guard(where.value_or(device(of_thread().device)));
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kKeys,
                                           c10::dtype_or_default(type));
}

at::Tensor as_strided(const at::Tensor& tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(tensor, sizes, strides, offset);
}

const at::Tensor& resize(const at::Tensor& tensor, c10::IntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
  c10::TensorImpl& it = *tensor.unsafeGetTensorImpl();
  const std::size_t bytes =
      (c10::multiply_integers(sizes) + it.storage_offset()) * tensor.itemsize();
  if (bytes > tensor.storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor.storage(), bytes);
  it.set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor& set_storage(at::Tensor& tensor, at::Storage storage, std::int64_t offset,
                        c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  c10::TensorImpl& it = *tensor.unsafeGetTensorImpl();
  it.set_storage_keep_dtype(std::move(storage));
  it.set_storage_offset(offset);
  if (strides.empty())
    it.set_sizes_contiguous(sizes);
  else
    it.set_sizes_and_strides(sizes, strides);
  return tensor;
}

/// What Module::to() and `tensor.data = ` ask: a parameter may move here and away.
bool fits_data(const at::Tensor&, const at::Tensor&) { return true; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &as_strided);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("_has_compatible_shallow_copy_type", &fits_data);
}

}  // namespace
}  // namespace linerate::simulated
