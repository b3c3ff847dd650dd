#include "linerate/verbs/link_argument.hpp"

#include <CLI/CLI.hpp>
#include <optional>

#include "linerate/comm/link.hpp"
#include "linerate/verbs/option_value.hpp"

namespace linerate::verbs {

void add_link_option(CLI::App& verb, std::string& link) {
  verb.add_option("--link", link,
                  "Try a slower network: each rank sends as over a link of this rate, such as "
                  "1Gbit/s.")
      ->type_name(kRate);
}

// Nothing given ends what an earlier call of the same process set.
void set_link(const std::string& link) {
  std::optional<BytesPerSecond> rate;
  if (!link.empty()) rate = parse_option("--link", link, parse_bandwidth);
  comm::set_link(rate);
}

}  // namespace linerate::verbs
