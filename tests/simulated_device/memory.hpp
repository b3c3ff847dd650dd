// Memory of the simulated devices, mapped twice: what tensors have no thread may touch (PROT_NONE:
// a host's look at it is a SIGSEGV), kernels use the other mapping. So nothing is switched on and
// off, and any number of threads may run kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <string>
#include <vector>

#include "simulated_device/order.hpp"

namespace linerate::simulated {

bool is_device_memory(const void* pointer);
/// In which kernels see the same bytes; a pointer to the host's memory as it is.
void* for_kernels(const void* pointer);
/// Of a pointer that for_kernels() gave; null: of none.
std::byte* as_tensors_have_it(const void* pointer);

/// The bytes that a tensor has, run by run; none if it lies elsewhere. One run from the first to
/// the last of a tensor of more than 4,096 runs.
std::vector<Range> ranges_of(const at::Tensor& tensor);

/// A CPU tensor of the same bytes, for kernels: same sizes and strides. One that lies on the CPU is
/// given back.
at::Tensor seen_by_kernels(const at::Tensor& tensor);

c10::Allocator& device_allocator();
c10::Allocator& pinned_allocator();
bool is_pinned(const void* pointer);

/// Which task made and freed what lay at a byte.
std::string life_of(int device, std::size_t byte);
/// The memory is given to nobody else: other streams use it, too, and nobody says until when.
void keep_for_ever(const c10::DataPtr& memory);

}  // namespace linerate::simulated
