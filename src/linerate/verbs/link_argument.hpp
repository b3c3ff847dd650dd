// --link RATE: a network slower than the one that is there.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace linerate::verbs {

void add_link_option(CLI::App& verb, std::string& link);
/// Before the ranks come together; of an empty text: none. Throws UsageError.
void set_link(const std::string& link);

}  // namespace linerate::verbs
