// Counts the work of K-FAC that takes the host longer to enqueue than the device to do. Private to
// torch_adapter.
#pragma once

#include <map>
#include <string>

#include "linerate/exec/streams/queue_timer.hpp"

namespace linerate::torch_adapter {

class SlowHost {
 public:
  /// `kind`: "factors"
  void see(const std::string& kind, const exec::CallTimes& times);
  /// How many of each kind are slower on the host, in words; empty: none.
  std::string note(const std::string& device) const;

 private:
  struct Count {
    int slow = 0, all = 0;
  };
  std::map<std::string, Count> kinds_;
};

}  // namespace linerate::torch_adapter
