// What a verb gets from its caller besides options: documents in memory, and where its progress
// goes. The command line has neither documents nor Python's callbacks; Python has both. A verb is
// the same function for the two.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::verbs {

/// Documents that a caller in the same process holds. An option names one as it would name a file.
/// An example: Python's whatif(workload=w) holds w as "<workload>", and gives that name as
/// --workload. The verb asks here first.
class Documents {
 public:
  /// A later document of the same name takes its place.
  template <typename Document>
  void hold(const std::string& name, std::shared_ptr<const Document> document) {
    held_[name] = std::move(document);
  }
  /// nullptr: no document has this name, so it is a file's.
  template <typename Document>
  std::shared_ptr<const Document> find(const std::string& name) const {
    const auto at = held_.find(name);
    if (at == held_.end()) return nullptr;
    if (const auto* held = std::get_if<std::shared_ptr<const Document>>(&at->second)) return *held;
    refuse(name, at->second.index(), Held(std::shared_ptr<const Document>()).index());
  }
  /// Of any kind.
  bool holds(const std::string& name) const { return held_.contains(name); }
  /// Whether the name is that of a document of this kind.
  template <typename Document>
  bool is(const std::string& name) const {
    const auto at = held_.find(name);
    return at != held_.end() && std::holds_alternative<std::shared_ptr<const Document>>(at->second);
  }

 private:
  using Held =
      std::variant<std::shared_ptr<const doc::Workload>, std::shared_ptr<const doc::Cluster>,
                   std::shared_ptr<const doc::Plan>, std::shared_ptr<const doc::Timeline>,
                   std::shared_ptr<const doc::Predictions>, std::shared_ptr<const doc::Advice>>;
  /// Throws UsageError: a document of another kind.
  [[noreturn]] static void refuse(const std::string& name, std::size_t found, std::size_t expected);

  std::map<std::string, Held> held_;
};

/// A line of text: how far the work is.
using Progress = std::function<void(const std::string&)>;

/// The command line's is almost empty: no documents, and a line of progress on a terminal.
struct Caller {
  Documents documents = {};
  Progress progress = {};

  /// Progress, if anybody wants it.
  void show(const std::string& text) const {
    if (progress) progress(text);
  }
};

/// The Cluster in memory, or that of the file.
std::shared_ptr<const doc::Cluster> cluster_of(const std::string& name, const Caller& caller);
/// The Timeline in memory, or that of the file, or of the traces of a job.
std::shared_ptr<const doc::Timeline> timeline_of(const std::string& name, const Caller& caller);

}  // namespace linerate::verbs
