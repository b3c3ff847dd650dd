#include "linerate/calibrate/trace_contention.hpp"

#include <fmt/format.h>

namespace linerate::calibrate {
namespace {

constexpr double kNotSlower = 1.005;  // rounds to 1.00

/// The factor, 1 if it is unknown.
double factor_of(const trace::SlowdownFound& found, const std::string& source, const char* what,
                 const char* other, std::vector<std::string>& notes) {
  if (found.slowdown) {
    const std::string slower = found.slowdown->factor < kNotSlower
                                   ? std::string("no slower")
                                   : fmt::format("{:.2f} times slower", found.slowdown->factor);
    notes.push_back(fmt::format("{}: {} runs {} during {} (90 % interval {:.2f} to {:.2f})", source,
                                what, slower, other, found.slowdown->low, found.slowdown->high));
    return found.slowdown->factor;
  }
  const char* why = found.comparisons < trace::kFewestComparisons
                        ? "too little of it was recorded both with and without"
                        : "the recorded times scatter too much";
  notes.push_back(
      fmt::format("{}: it is not known how much slower {} runs during {}, because {}; taken as 1",
                  source, what, other, why));
  return 1;
}

}  // namespace

std::optional<doc::Contention> contention_from_trace(const trace::Overlap& overlap,
                                                     const std::string& source,
                                                     std::vector<std::string>& notes) {
  const trace::SlowdownFound compute = trace::compute_slowdown(overlap);
  const trace::SlowdownFound communication = trace::slowdown_of(overlap.communication);
  doc::Contention contention;
  contention.compute_slowdown = factor_of(compute, source, "computation", "collectives", notes);
  contention.communication_slowdown =
      factor_of(communication, source, "communication", "computation", notes);
  if (!compute.slowdown && !communication.slowdown) return std::nullopt;
  return contention;
}

}  // namespace linerate::calibrate
