// A verb is one file with one setup function: options struct, subcommand, callback.
#pragma once

#include <array>

namespace CLI {
class App;
}

namespace linerate::cli {

struct Verb {
  void (*setup)(CLI::App&);
};

void setup_list(CLI::App&);
void setup_train(CLI::App&);
void setup_import(CLI::App&);
void setup_explain(CLI::App&);
void setup_calibrate(CLI::App&);
void setup_whatif(CLI::App&);
void setup_plan(CLI::App&);
void setup_rehearse(CLI::App&);
void setup_compare(CLI::App&);
void setup_export(CLI::App&);
void setup_advise(CLI::App&);
void setup_report(CLI::App&);

/// In the order of --help. A new verb is its file, a declaration above, a line here and a line in
/// CMakeLists.txt.
inline constexpr std::array kVerbs = {
    Verb{setup_list},      Verb{setup_train},  Verb{setup_import}, Verb{setup_explain},
    Verb{setup_calibrate}, Verb{setup_whatif}, Verb{setup_plan},   Verb{setup_rehearse},
    Verb{setup_compare},   Verb{setup_export}, Verb{setup_advise}, Verb{setup_report},
};

}  // namespace linerate::cli
