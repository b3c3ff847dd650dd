// linerate whatif all-reduce -c cluster.json --ranks 4 --size 1MiB,64MiB: the time of one
// collective, with its interval.
#include "linerate/cli/verb.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/core/error.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/verbs/verbs.hpp"

namespace linerate::cli {

void setup_whatif_collectives(CLI::App& whatif) {
  struct Arguments {
    verbs::CollectiveOptions options;
    bool json = false;
  };
  for (const std::string_view name : kCollectiveNames) {
    const auto a = std::make_shared<Arguments>();
    a->options.collective = parse_collective(name);
    CLI::App* verb = whatif.add_subcommand(std::string(name), fmt::format("Time of one {}.", name));
    // Every spelling of core/dtype.hpp: all_reduce, AllReduce, allreduce.
    std::string plain(name);
    std::erase(plain, '-');
    if (plain != name) verb->alias(plain);
    verb->ignore_case()->ignore_underscore();
    verbs::add_options(*verb, a->options);
    verb->add_flag("--json", a->json, "Print the predictions as JSON.");
    verb->callback([a, verb, &whatif] {
      // `whatif --ranks 4 all-reduce`: the option would belong to the other question and be lost.
      // The message shows the line as it should be.
      for (const CLI::Option* option : whatif.get_options())
        if (option->count() > 0)
          throw UsageError(
              fmt::format("{0}: options go after {1}; write linerate whatif {1} {0} ...",
                          option->get_name(), verb->get_name()));
      const cost::CollectiveTimes times = verbs::whatif_collective(a->options);
      fmt::print("{}", a->json ? report::to_json(times) : report::to_text(times));
    });
  }
}

}  // namespace linerate::cli
