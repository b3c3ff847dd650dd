// The findings of a step about factors and directions. The host hears of them at once on the CPU,
// and later on a device. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "linerate/torch_streams/late_values.hpp"

namespace linerate::torch_adapter {

/// A step's notes are joined to one vector of f64, which is copied to the host without a wait
/// (LateValues). For example step 7 notes two bool tensors of 4 and 3 elements. send() copies 9
/// numbers, q and nu first. In step 9 they have come; take() counts for each member how often in a
/// row it was so.
///
/// Thread safety: one thread.
class LateFindings {
 public:
  enum class What : std::uint8_t {
    dropped,       // a batch's factor that is not finite
    not_inverted,  // a factor whose inverse failed
    plain          // a block whose gradient stays as it is
  };
  struct Finding {
    What what = What::dropped;
    std::int32_t member = 0;  // a factor or a block
    int in_a_row = 0;         // this one included
  };
  struct Step {
    std::int64_t step = -1;
    double q = 0, nu = 0;
    std::vector<Finding> findings;
  };

  /// Notes a finding of the step that is being computed; `is_so`: bool [members].
  void note(What what, std::vector<std::int32_t> members, const at::Tensor& is_so);
  void forget_notes() { noted_.clear(); }
  /// Ends the step and sends its notes and these numbers, each a scalar f64 tensor, to the host.
  void send(std::int64_t step, const at::Tensor& q, const at::Tensor& nu);
  /// The findings of the next step, if they have come by now.
  std::optional<Step> take();

 private:
  struct Note {
    What what;
    std::vector<std::int32_t> members;
    at::Tensor is_so;
  };
  struct Sent {
    std::int64_t step;
    std::vector<Note> notes;
  };

  std::vector<Note> noted_;
  std::deque<Sent> sent_;
  torch_streams::LateValues values_;
  std::map<std::tuple<What, std::int32_t>, int> in_a_row_;
};

}  // namespace linerate::torch_adapter
