#include "linerate/compress/registry.hpp"

#include <algorithm>
#include <utility>

// The compressors, a line each, as `linerate list compressors` prints them: the names of their
// files in method/.
#define LINERATE_COMPRESSORS(COMPRESSOR) \
  COMPRESSOR(fp16)                       \
  COMPRESSOR(bf16)                       \
  COMPRESSOR(signsgd)                    \
  COMPRESSOR(efsignsgd)                  \
  COMPRESSOR(onebit)                     \
  COMPRESSOR(onebit_adam)                \
  COMPRESSOR(qsgd)                       \
  COMPRESSOR(maxmin)                     \
  COMPRESSOR(terngrad)                   \
  COMPRESSOR(natural)                    \
  COMPRESSOR(topk)                       \
  COMPRESSOR(randomk)                    \
  COMPRESSOR(threshold)                  \
  COMPRESSOR(sidco)                      \
  COMPRESSOR(dgc)                        \
  COMPRESSOR(mstopk)                     \
  COMPRESSOR(powersgd)                   \
  COMPRESSOR(acpsgd)

namespace linerate::compress {

#define LINERATE_LINE(file) CompressorLine compressor_##file();
LINERATE_COMPRESSORS(LINERATE_LINE)
#undef LINERATE_LINE

namespace {

#define LINERATE_LINE(file) compressor_##file(),
std::vector<CompressorLine> built_in() { return {LINERATE_COMPRESSORS(LINERATE_LINE)}; }
#undef LINERATE_LINE

Registry<MakeCompressor>& registry() {
  static Registry<MakeCompressor> table("compressor", built_in());
  return table;
}

}  // namespace

const Registry<MakeCompressor>& compressors() { return registry(); }

void register_compressor(CompressorLine line) {
  const std::vector<std::string> known = registry().names();
  if (std::find(known.begin(), known.end(), line.name) != known.end())
    throw UsageError("a compressor named \"" + line.name + "\" is registered already");
  std::vector<CompressorLine> lines = registry().lines();
  lines.push_back(std::move(line));
  registry() = Registry<MakeCompressor>("compressor", std::move(lines));
}

bool is_summable(const Compressor& compressor) {
  const std::vector<Round> rounds = compressor.rounds({std::int64_t{1} << 20, 1024});
  return std::all_of(rounds.begin(), rounds.end(),
                     [](const Round& round) { return round.combine == Combine::sum; });
}

std::vector<std::string> options_of(std::string_view compressor) {
  const doc::Component plain{std::string(compressor), {}};
  doc::OptionReader options(plain);
  compressors().at(compressor)(options);
  return options.known();
}

std::unique_ptr<const Compressor> make_compressor(const doc::Component& component) {
  const MakeCompressor make = compressors().at(component.name);
  doc::OptionReader options(component);
  auto compressor = make(options);
  options.finish();
  return compressor;
}

}  // namespace linerate::compress
