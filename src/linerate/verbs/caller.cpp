#include "linerate/verbs/caller.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "linerate/core/error.hpp"
#include "linerate/trace/import_files.hpp"

namespace linerate::verbs {
namespace {

// In the order of Documents::Held.
constexpr std::array<std::string_view, 6> kKinds = {"Workload", "Cluster",     "Plan",
                                                    "Timeline", "Predictions", "Advice"};

}  // namespace

// A document is there, but of another kind: "<workload>: expected a Workload or a file, found a
// Cluster".
void Documents::refuse(const std::string& name, std::size_t found, std::size_t expected) {
  throw UsageError(fmt::format("{}: expected a {} or a file, found a {}", name, kKinds.at(expected),
                               kKinds.at(found)));
}

// A document in memory is shared, not copied: verbs read it alone.
std::shared_ptr<const doc::Cluster> cluster_of(const std::string& name, const Caller& caller) {
  if (auto held = caller.documents.find<doc::Cluster>(name)) return held;
  return std::make_shared<doc::Cluster>(doc::load_cluster(name));
}

std::shared_ptr<const doc::Timeline> timeline_of(const std::string& name, const Caller& caller) {
  if (auto held = caller.documents.find<doc::Timeline>(name)) return held;
  return std::make_shared<doc::Timeline>(trace::load_timeline({name}));
}

}  // namespace linerate::verbs
