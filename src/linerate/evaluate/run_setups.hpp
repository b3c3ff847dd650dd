// One launch's setups, and the file that a loop over networks and rank counts fills.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/evaluation.hpp"

namespace linerate::evaluate {

struct NewSetup {
  doc::Setup setup;  // what tells it from others
  /// Adds the runs, alike on every rank. Collective.
  std::function<void(doc::Setup&)> run;
};

/// Runs the setups one after the other and returns all setups, those read included; complete on
/// rank 0. Rank 0 writes each setup to the file as soon as it is done, because a later one may
/// fail. An empty path: no file. With `extend` they join the setups of an existing file; without it
/// the file must not exist. Before anything is measured it tries the folder, and throws UsageError
/// for a setup of the same title as one in the file. An error of rank 0 is thrown on every rank.
/// Collective.
doc::Evaluation run_setups(comm::Communicator& communicator, const std::filesystem::path& path,
                           bool extend, std::vector<NewSetup> setups);

}  // namespace linerate::evaluate
