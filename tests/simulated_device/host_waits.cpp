#include <set>

#include "simulated_device/kernels.hpp"

namespace linerate::simulated {

/// CUDA's kernels of these copy something to the host and wait for it (ATen/native/cuda: Nonzero,
/// Unique, SummaryOps, Repeat; BatchLinearAlgebra's check of infos).
bool makes_host_wait(const std::string& operator_name) {
  static const std::set<std::string> names = {"aten::_local_scalar_dense",
                                              "aten::_linalg_eigh",
                                              "aten::_linalg_svd",
                                              "aten::_unique",
                                              "aten::_unique2",
                                              "aten::bincount",
                                              "aten::equal",
                                              "aten::histc",
                                              "aten::linalg_cholesky",
                                              "aten::linalg_eig",
                                              "aten::linalg_eigh",
                                              "aten::linalg_inv",
                                              "aten::linalg_solve",
                                              "aten::masked_select",
                                              "aten::nonzero",
                                              "aten::repeat_interleave",
                                              "aten::unique_consecutive",
                                              "aten::unique_dim"};
  return names.contains(operator_name);
}

}  // namespace linerate::simulated
