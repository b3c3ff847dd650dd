// What the closed model of Agarwal et al. 2021 (arXiv 2103.00543) is asked with.
#pragma once

namespace linerate::whatif {

/// What that model needs besides the network.
struct AgarwalOptions {
  double gamma = 1.07;    // slowdown of backward under overlap
  double epsilon = 0.05;  // how much slower than backward alone still counts as scaling
};

}  // namespace linerate::whatif
