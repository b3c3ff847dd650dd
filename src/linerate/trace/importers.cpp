// The list of importers. A format registers itself by a function in its folder, and its position in
// the list says who is asked first.
#include "linerate/trace/importers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

// The formats, a folder each. The first importer that knows a file reads it: PyTorch's come last,
// as any other JSON may be a PyTorch trace.
#define LINERATE_IMPORTERS(FOLDER) \
  FOLDER(timeline)                 \
  FOLDER(chakra)                   \
  FOLDER(per_gradient)             \
  FOLDER(benchmark_log)            \
  FOLDER(not_read)                 \
  FOLDER(horovod)                  \
  FOLDER(pytorch)

namespace linerate::trace {

#define LINERATE_DECLARE(folder) std::vector<Importer> folder##_importers();
LINERATE_IMPORTERS(LINERATE_DECLARE)
#undef LINERATE_DECLARE

namespace {

std::vector<Importer> all_importers() {
  std::vector<Importer> all;
  const auto add = [&all](const std::vector<Importer>& some) {
    all.insert(all.end(), some.begin(), some.end());
  };
#define LINERATE_ADD(folder) add(folder##_importers());
  LINERATE_IMPORTERS(LINERATE_ADD)
#undef LINERATE_ADD
  all.push_back({.name = "unknown",
                 .matches = [](const Head&) { return Match::yes; },
                 .advice = "expected a PyTorch, Horovod or Chakra trace or a linerate timeline, "
                           "found none of them"});
  return all;
}

}  // namespace

const std::vector<Importer>& importers() {
  static const std::vector<Importer> all = all_importers();
  return all;
}

/// The first importer that does not say no. It is sure if that importer says yes, and not maybe.
Recognised recognise(std::string_view head) {
  const Head first(head);
  for (const Importer& importer : importers())
    if (const Match match = importer.matches(first); match != Match::no)
      return {&importer, match == Match::yes};
  return {};  // the last one matches all
}

bool is_trace(std::string_view head) {
  const auto [importer, sure] = recognise(head);
  return sure && importer->read != nullptr;
}

std::string advice_for(const Importer& importer, const std::string& file) {
  return fmt::format(fmt::runtime(importer.advice), fmt::arg("file", file));
}

}  // namespace linerate::trace
