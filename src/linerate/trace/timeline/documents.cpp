#include "linerate/trace/timeline/documents.hpp"

#include "linerate/doc/timeline.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"

namespace linerate::trace {
namespace {

/// The first keys of a document say what it is.
Head first_keys(const Head& head) { return Head(head.text().substr(0, 512)); }

bool is_timeline(const Head& head) {
  return is_document(head) && first_keys(head).contains("\"timeline\"");
}

}  // namespace

bool is_document(const Head& head) {
  const Head front = first_keys(head);
  return front.text().starts_with('{') && front.contains("\"document\"") &&
         front.contains("\"schema\"");
}

std::vector<Importer> timeline_importers() {
  return {
      {.name = "linerate Timeline",
       .matches = [](const Head& head) { return yes_if(is_timeline(head)); },
       .read = [](PaddedText text, const std::string& file, const ReadOptions&) -> std::any {
         return job_of(doc::timeline_from_json(std::string(text.view()), file));
       },
       .join = only_job},
      {.name = "linerate document",
       .matches = [](const Head& head) { return yes_if(is_document(head) && !is_timeline(head)); },
       .advice = "a linerate document, but not a Timeline; explain reads Timelines and traces"}};
}

}  // namespace linerate::trace
