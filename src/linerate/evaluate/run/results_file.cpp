#include "linerate/evaluate/run/results_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/comm/agreement.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"

namespace linerate::evaluate {

ResultsFile::ResultsFile(comm::Communicator& communicator, std::filesystem::path path, bool extend)
    : communicator_(communicator), path_(std::move(path)) {
  comm::require_success(communicator_, "results", [&] {
    if (communicator_.rank() != 0 || path_.empty()) return;
    const bool there = std::filesystem::exists(path_);
    if (there && !extend)
      throw UsageError(
          fmt::format("-o {}: the file is there already; add to it with --append, or name another",
                      path_.string()));
    if (there) all_ = doc::load_evaluation(path_);
    make_and_try_folder_of(path_);
  });
}

void ResultsFile::require_new(const doc::Setup& setup) {
  comm::require_success(communicator_, "results", [&] {
    const bool known =
        std::any_of(all_.setups.begin(), all_.setups.end(),
                    [&](const doc::Setup& s) { return doc::title_of(s) == doc::title_of(setup); });
    if (known)
      throw UsageError(fmt::format(
          "{}: expected a new setup, found {} in it; give this network another --network, or "
          "another file",
          path_.empty() ? "results" : path_.string(), doc::title_of(setup)));
  });
}

void ResultsFile::add(doc::Setup setup) {
  all_.setups.push_back(std::move(setup));
  comm::require_success(communicator_, "results", [&] {
    if (communicator_.rank() == 0 && !path_.empty()) doc::save(all_, path_);
  });
}

}  // namespace linerate::evaluate
