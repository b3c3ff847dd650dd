#include "linerate/doc/convergence.hpp"

namespace linerate::doc {

bool changes_convergence(const Strategy& strategy) {
  const std::string* wire = strategy.exchange.find("wire");
  return !strategy.extras.empty() || (wire && *wire != "fp32" && *wire != "f32");
}

}  // namespace linerate::doc
