#include "linerate/verbs/verbs.hpp"

#include <CLI/CLI.hpp>

namespace linerate::verbs {

void add_options(CLI::App& verb, CompareOptions& o) {
  verb.add_option("predicted", o.predicted, "Timeline of a simulation.")->required();
  verb.add_option("measured", o.measured,
                  "Timeline of a run, a trace of its only rank, or the folder or pattern of all "
                  "its ranks' traces.")
      ->required();
  verb.add_option("--noise", o.noise,
                  "A second run of the same job. The difference between the two is the noise. "
                  "Default: every second step of the measured run against the others.");
  verb.add_option("--warm-up", o.warm_up, "Measured steps to drop. Default: a tenth, at least two.")
      ->check(count(0, 1'000'000));
}

compare::Comparison compare(const CompareOptions& o, const Caller& caller) {
  auto predicted = caller.documents.find<doc::Timeline>(o.predicted);
  if (!predicted) predicted = std::make_shared<doc::Timeline>(doc::load_timeline(o.predicted));
  const auto measured = timeline_of(o.measured, caller);
  std::shared_ptr<const doc::Timeline> noise;
  if (!o.noise.empty()) noise = timeline_of(o.noise, caller);
  return compare::compare(*predicted, *measured, {.warm_up = o.warm_up, .noise = noise.get()});
}

}  // namespace linerate::verbs
