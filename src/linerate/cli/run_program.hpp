// Runs a program's verbs and turns what they throw into text and an exit status.
#pragma once

namespace CLI {
class App;
}

namespace linerate::cli {

/// The exit status: 0, 2 usage, 3 input, 4 communication, 5 device, 70 internal. If a job's ranks
/// fail alike, only rank 0 says why; one that fails on its own says so after "rank N:".
int run_program(CLI::App& app, int argc, char** argv);

}  // namespace linerate::cli
