// The sub-verbs `linerate whatif all-reduce | all-gather | ...`: the time of one collective.
#pragma once

namespace CLI {
class App;
}

namespace linerate::cli {

/// Adds one sub-verb per collective to `whatif`. Its own callback must return at once when one of
/// them was given.
void setup_whatif_collectives(CLI::App& whatif);

}  // namespace linerate::cli
