// The options of what is trained, for `train` and `evaluate` alike.
#pragma once

#include <string>

#include "linerate/zoo/train.hpp"

namespace CLI {
class App;
}

namespace linerate::cli {

/// Data set, optimizer, seed and threads, with the defaults that `options` has; `input` gets the
/// text of --input. The model and what a verb does with it are options of its own.
void add_training_options(CLI::App& verb, zoo::TrainOptions& options, std::string& input);

}  // namespace linerate::cli
