// Runs the Plan's casts for what they cost, over memory of the right size that nobody reads.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "linerate/exec/operation.hpp"

namespace linerate::exec {

class CastOperation : public Operation {
 public:
  /// Throws UsageError if the plan's codec is no cast, and for types that cannot be cast.
  explicit CastOperation(const doc::Plan& plan);

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  const doc::Plan& plan_;
  std::shared_ptr<std::byte> dense_, encoded_;  // memory of the largest bucket, f32 and cast
};

}  // namespace linerate::exec
