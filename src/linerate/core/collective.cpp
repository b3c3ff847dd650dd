#include <string>

#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"

namespace linerate {
namespace {

std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '-' && c != '_' && c != ' ')
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

}  // namespace

Collective parse_collective(std::string_view name) {
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i)
    if (plain(kCollectiveNames[i]) == plain(name)) return static_cast<Collective>(i);
  throw UsageError(
      "unknown collective \"" + std::string(name) +
      "\"; known: all-reduce reduce-scatter all-gather all-to-all broadcast reduce barrier");
}

double bus_factor(Collective c, int ranks) {
  const double n = ranks;
  switch (c) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return (n - 1) / n;
    default:
      return 1;
  }
}

DType parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDTypeNames.size(); ++i)
    if (kDTypeNames[i] == name) return static_cast<DType>(i);
  throw UsageError("unknown element type \"" + std::string(name) +
                   "\"; known: f32 f64 f16 bf16 i32 i64 u8");
}

void check_failed(const char* expression, const std::string& detail, const char* file, int line) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) +
                      ": check failed: " + expression + (detail.empty() ? "" : ": " + detail) +
                      "; this is a bug in linerate, please report it");
}

}  // namespace linerate
