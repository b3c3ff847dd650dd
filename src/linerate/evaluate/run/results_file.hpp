// The file that a loop over networks and rank counts fills, one launch after the other.
#pragma once

#include <filesystem>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/evaluation.hpp"

namespace linerate::evaluate {

/// Rank 0 reads and writes; what it cannot do is thrown on every rank. Nothing where the path is
/// empty.
class ResultsFile {
 public:
  /// With `extend`, setups join those that the file holds already. Without it the file is made anew
  /// and must not be there yet. Tries the folder before anything is measured. Collective.
  ResultsFile(comm::Communicator& communicator, std::filesystem::path path, bool extend);

  /// Throws UsageError where there is a setup of this title, before it is measured once more.
  /// Collective.
  void require_new(const doc::Setup& setup);
  /// Written at once: what comes later may fail. Collective.
  void add(doc::Setup setup);

  /// All setups, those read included; complete on rank 0.
  const doc::Evaluation& all() const { return all_; }

 private:
  comm::Communicator& communicator_;
  std::filesystem::path path_;
  doc::Evaluation all_;
};

}  // namespace linerate::evaluate
