// Verbs of the `linerate-torch` program, as those of verb.hpp: torch_NAME.cpp defines
// setup_torch_NAME, and NAME stands in this list.
#pragma once

#include <array>

namespace CLI {
class App;
}

namespace linerate::cli {

void setup_torch_calibrate(CLI::App& app);
void setup_torch_train(CLI::App& app);
void setup_torch_evaluate(CLI::App& app);

inline constexpr std::array kTorchSetups = {setup_torch_calibrate, setup_torch_train,
                                            setup_torch_evaluate};

}  // namespace linerate::cli
