#include "linerate/comm/thread/run_ranks.hpp"
#include "torch_adapter/back_end.hpp"

namespace linerate::torch_adapter {

void run_on(int n, const std::function<void(comm::Communicator&)>& f) { comm::run_ranks(n, f); }

}  // namespace linerate::torch_adapter
