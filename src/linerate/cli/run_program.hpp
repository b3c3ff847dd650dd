// Runs a program's verbs and turns what they throw into text and an exit status.
#pragma once

namespace CLI {
class App;
}

namespace linerate::cli {

/// The exit status: 0, 2 usage, 3 input, 4 communication, 5 device, 70 internal. Of a job's ranks
/// that fail alike, rank 0 alone says why; one that fails on its own says so behind "rank N:".
int run_program(CLI::App& app, int argc, char** argv);

}  // namespace linerate::cli
