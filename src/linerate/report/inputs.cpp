// What kind of document a file holds is read from the file, not from its name. Traces have no kind
// of their own: all of them together are one job's.
#include "linerate/report/inputs.hpp"

#include <fmt/format.h>

#include <fstream>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/report/sections.hpp"
#include "linerate/trace/load.hpp"

namespace linerate::report {
namespace {

constexpr std::string_view kAccepted =
    "expected a Timeline, the output of \"whatif --json\", of \"advise --json\" or of "
    "\"evaluate\", "
    "or the losses of \"linerate train --losses\"";
constexpr std::string_view kLossHead = "step,loss\n";

NamedLosses losses_of(std::string_view text, const std::string& file) {
  NamedLosses losses{std::filesystem::path(file).stem().string(), 0, {}};
  text.remove_prefix(kLossHead.size());
  for (std::size_t line = 2; !text.empty(); ++line) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), row.size() + 1));
    const std::size_t comma = row.find(',');
    try {
      if (comma == std::string_view::npos) throw UsageError("no comma");
      const std::int64_t step = parse_integer(row.substr(0, comma));
      losses.values.push_back(parse_number(row.substr(comma + 1)));
      if (losses.values.size() == 1) losses.first_step = step;
    } catch (const UsageError&) {
      throw InputError(fmt::format("{}: line {}", file, line),
                       fmt::format("expected a step and its loss, such as 12,0.345; found \"{}\"; "
                                   "write the file again by linerate train --losses",
                                   row));
    }
  }
  return losses;
}

// Compressed traces have no lines.
bool has_losses(const std::string& file) {
  std::string begin(kLossHead.size(), '\0');
  std::ifstream(file, std::ios::binary)
      .read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == kLossHead;
}

// People send pages on: where the files lay on this machine is not theirs to know. An example:
// "/home/ann/runs/a.json" is read, and a note says "/home/ann/runs/a.json: step 3 is cut off". On
// the page it says "a.json: step 3 is cut off". A file named without a folder needs nothing.
std::string without_folders(std::string text, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const std::string folder = std::filesystem::path(path).parent_path().string() + "/";
    if (folder.size() < 2) continue;
    for (std::size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at))
      text.erase(at, folder.size());
  }
  return text;
}

// Not only sources: errors, notes and titles name files too, and the command that made the page.
void drop_folders(Page& page, const std::vector<std::string>& paths) {
  const auto drop = [&paths](std::string& text) { text = without_folders(std::move(text), paths); };
  for (std::string& source : page.sources) source = std::filesystem::path(source).filename();
  for (Section& section : page.sections) drop(section.title);
  for_each_text(page, drop);
  drop(page.command);
  drop(page.title);
}

}  // namespace

// Predictions may lack the field that says a document's kind: they are known by their list.
void add_document(Inputs& inputs, const std::string& text, const std::string& file) {
  if (text.starts_with(kLossHead)) {
    inputs.losses.push_back(losses_of(text, file));
    inputs.files.push_back(file);
    return;
  }
  const doc::Json json = doc::parse_json(text, file);
  const doc::JsonReader reader(json, file);
  if (json.is_object() && json.contains("predictions")) {
    inputs.predictions.emplace_back(file, doc::predictions_from_json(text, file));
  } else if (!reader.has("document")) {
    throw InputError(
        file, fmt::format("{}; found {}", kAccepted,
                          json.is_object() ? "an object without \"document\" or \"predictions\""
                                           : "JSON that is not an object"));
  } else if (const std::string kind = reader.at("document").string(); kind == "timeline") {
    inputs.timelines.push_back(
        {file, std::filesystem::path(file).stem().string(), doc::timeline_from_json(text, file)});
  } else if (kind == "advice") {
    inputs.advice.push_back(doc::advice_from_json(text, file));
  } else if (kind == "evaluation") {
    inputs.evaluations.push_back(doc::evaluation_from_json(text, file));
  } else {
    throw InputError(file, fmt::format("{}; found a document of kind \"{}\"", kAccepted, kind));
  }
  inputs.files.push_back(file);
}

// A name that does not exist may be a pattern of traces, so it goes to the importer, which says
// what it misses.
void add_files(Inputs& inputs, const std::vector<std::string>& files) {
  std::vector<std::filesystem::path> traces;
  for (const std::string& file : files)
    if (has_losses(file) || (std::filesystem::exists(file) && !trace::is_raw_trace(file)))
      add_document(inputs, read_file(file), file);
    else
      traces.emplace_back(file);
  if (traces.empty()) return;
  trace::ExplainedTimeline loaded = trace::load_explained(traces);
  const std::string name = traces.front().string();
  inputs.timelines.push_back({name, traces.front().stem().string(), std::move(loaded.timeline),
                              std::move(loaded.explanation)});
  for (const std::filesystem::path& trace : traces) inputs.files.push_back(trace.string());
}

// All documents are checked before the first is drawn: half a page is worse than an error. A page
// of one section takes its title.
Page page_of(const Inputs& inputs, const std::string& command, const std::string& version) {
  Page page{
      inputs.title.empty() ? "linerate report" : inputs.title, inputs.files, command, version, {}};
  for (const doc::Advice& advice : inputs.advice) validate(advice);
  for (const doc::Evaluation& evaluation : inputs.evaluations) validate(evaluation);
  for (const auto& [file, predictions] : inputs.predictions) validate(predictions, file);
  for (const NamedTimeline& shown : inputs.timelines) validate(shown.timeline, shown.file);
  if (std::optional<Section> change = change_section(inputs)) {
    if (inputs.title.empty()) page.title = change->title;
    page.sections.push_back(std::move(*change));
  }
  for (const doc::Advice& advice : inputs.advice) page.sections.push_back(section_of(advice));
  for (const doc::Evaluation& evaluation : inputs.evaluations)
    for (Section& section : sections_of(evaluation)) page.sections.push_back(std::move(section));
  for (const auto& [file, predictions] : inputs.predictions)
    page.sections.push_back(section_of(predictions, file.empty() ? "What if" : "What if: " + file));
  for (Section& section : sections_of(inputs.timelines))
    page.sections.push_back(std::move(section));
  if (page.sections.size() == 1) page.title = page.sections.front().title;
  drop_folders(page, inputs.files);
  return page;
}

void save_page(const Inputs& inputs, const std::string& command, const std::string& version,
               const std::filesystem::path& path) {
  const std::string shown = without_folders(command, {path.string()});
  write_file_atomically(path, to_html(page_of(inputs, shown, version)));
}

}  // namespace linerate::report
