// Private: long work that obeys Ctrl-C, without the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>
#include <optional>
#include <utility>

#include "linerate/verbs/caller.hpp"

namespace linerate::python {

/// Runs `work` in a thread of its own. The calling thread lets other threads of Python run, looks
/// for signals and hands the latest line of progress to `progress` (a callable, or None) ten times
/// a second. A signal's exception, or one of `progress`, stops the work and is raised when the work
/// has ended.
void run_interruptible(const std::function<void(const verbs::Caller&)>& work,
                       const verbs::Documents& documents, nanobind::handle progress);

template <typename Result>
Result interruptible(const std::function<Result(const verbs::Caller&)>& work,
                     const verbs::Documents& documents, nanobind::handle progress) {
  std::optional<Result> result;
  run_interruptible([&](const verbs::Caller& caller) { result.emplace(work(caller)); }, documents,
                    progress);
  return std::move(*result);
}

}  // namespace linerate::python
