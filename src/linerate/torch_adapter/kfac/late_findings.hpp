// What a device finds out about factors and directions, for a host that hears of it later. Private
// to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "linerate/doc/block.hpp"
#include "linerate/torch_streams/late_values.hpp"

namespace linerate::torch_adapter {

/// What is said of a factor.
inline constexpr const char* kDropped = "a batch's factor is not finite and was dropped";
inline constexpr const char* kNotInverted = "its inverse failed and the old one is kept";

/// Thread safety: one thread.
class LateFindings {
 public:
  enum class What : std::uint8_t { dropped, not_inverted };
  struct Finding {
    std::size_t block = 0;
    doc::FactorSide side = doc::FactorSide::a;
    What what = What::dropped;
    int in_a_row = 0;  // this one included
  };
  struct Step {
    std::int64_t step = -1;
    std::vector<double> numbers;
    std::vector<Finding> findings;
  };

  /// In the step that is being enqueued; `failed`: bool, of no dimensions.
  void note(std::size_t block, doc::FactorSide side, What what, const at::Tensor& failed);
  void forget_notes() { noted_.clear(); }
  /// Ends the step: its notes and these numbers are on their way; each f64, of no dimensions.
  void send(std::int64_t step, std::vector<at::Tensor> numbers);
  /// The next step, if what it found has come by now.
  std::optional<Step> take();

 private:
  struct Note {
    std::size_t block;
    doc::FactorSide side;
    What what;
    at::Tensor failed;
  };
  struct Sent {
    std::int64_t step;
    std::size_t numbers;  // before what is noted
    std::vector<Note> notes;
  };

  std::vector<Note> noted_;
  std::deque<Sent> sent_;
  torch_streams::LateValues values_;
  std::map<std::tuple<std::size_t, doc::FactorSide, What>, int> in_a_row_;
};

}  // namespace linerate::torch_adapter
