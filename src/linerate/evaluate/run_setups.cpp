#include "linerate/evaluate/run_setups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "linerate/comm/agreement.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"

namespace linerate::evaluate {
namespace {

// The file's setups if it exists and may be extended, else none. Tries the folder, so that a long
// run does not fail at its end.
doc::Evaluation opened(const std::filesystem::path& path, bool extend) {
  const bool exists = std::filesystem::exists(path);
  if (exists && !extend)
    throw UsageError(fmt::format(
        "-o {}: the file exists already; add to it with --append, or name another", path.string()));
  doc::Evaluation held;
  if (exists) held = doc::load_evaluation(path);
  make_and_try_folder_of(path);
  return held;
}

void require_new(const doc::Setup& setup, const doc::Evaluation& held,
                 const std::filesystem::path& path) {
  const std::string title = doc::title_of(setup);
  if (std::any_of(held.setups.begin(), held.setups.end(),
                  [&](const doc::Setup& s) { return doc::title_of(s) == title; }))
    throw UsageError(
        fmt::format("{}: expected a new setup, found {} in it; give this network another "
                    "--label, or another file",
                    path.string(), title));
}

}  // namespace

doc::Evaluation run_setups(comm::Communicator& communicator, const std::filesystem::path& path,
                           bool extend, std::vector<NewSetup> setups) {
  const bool writes = communicator.rank() == 0 && !path.empty();
  doc::Evaluation all;
  comm::require_success(communicator, "results", [&] {
    if (!writes) return;
    all = opened(path, extend);
    for (const NewSetup& one : setups) require_new(one.setup, all, path);
  });
  for (NewSetup& one : setups) {
    one.run(one.setup);
    all.setups.push_back(std::move(one.setup));
    comm::require_success(communicator, "results", [&] {
      if (writes) doc::save(all, path);
    });
  }
  return all;
}

}  // namespace linerate::evaluate
