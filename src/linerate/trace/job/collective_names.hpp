// Private: names of collectives, kernels and element types, as PyTorch and the tools around it
// write them.
#pragma once

#include <cstdint>
#include <string_view>

#include "linerate/core/dtype.hpp"
#include "linerate/trace/job/comm_op.hpp"

namespace linerate::trace {

/// "allreduce", "_allgather_base", "reduce_scatter_tensor_coalesced", ... in any case; unknown ones
/// are unknown.
CommOp op_of_collective_name(std::string_view name);
/// "wait", "init": records that move nothing.
bool is_no_communication(std::string_view collective_name);
/// Whether a kernel of this lower-case name communicates; of what is unknown, whether its name
/// sounds so.
enum class Communicates : std::uint8_t { no, maybe, yes };
Communicates kernel_communicates(std::string_view lower);
/// From a kernel's lower-case name; all-to-all shows as send-recv, RCCL's generic kernel as
/// unknown.
CommOp op_of_kernel_name(std::string_view lower);
/// "Float", "BFloat16", "c10::Half", "long int", "Float8_e4m3fn", ...; -1 when unknown.
int element_bytes_of(std::string_view type);
/// The nearest element type of the documents; sizes agree except for 16-byte complex numbers.
DType dtype_of_type(std::string_view type);

}  // namespace linerate::trace
