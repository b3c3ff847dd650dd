// Verbs of the `linerate-torch` program.
#pragma once

namespace CLI {
class App;
}

namespace linerate::cli {

void setup_torch_train(CLI::App& app);
void setup_torch_evaluate(CLI::App& app);

}  // namespace linerate::cli
