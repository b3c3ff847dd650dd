#include "linerate/cli/whatif_pictures.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/report/predictions.hpp"
#include "linerate/report/terminal_curve.hpp"

namespace linerate::cli {
namespace {

std::vector<report::Prediction> drawable(const advise::Answer& answer) {
  std::vector<report::Prediction> out;
  for (const advise::Prediction& p : answer.predictions) {
    if (!p.bandwidth_bit_per_s) continue;
    report::Prediction d{
        p.strategy, p.ranks, *p.bandwidth_bit_per_s, p.compression_ratio,  p.step_s,
        {},         {},      p.scaling_factor,       p.changes_convergence};
    if (p.interval) d.step_low_s = p.interval->low_s, d.step_high_s = p.interval->high_s;
    out.push_back(std::move(d));
  }
  if (out.empty())
    throw UsageError("curves over bandwidth need --bandwidth, or a Cluster with one");
  return out;
}

// POSIX: the first of these that is set and not empty decides.
std::string locale_name() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value && *value) return value;
  return "";
}

}  // namespace

void print_curves(const advise::Answer& answer) {
  report::TerminalOptions options;
  options.ascii = !report::shows_unicode(locale_name());
  for (const report::LineChart& chart : report::scaling_charts(drawable(answer)))
    fmt::print("\n{}\n\n{}", chart.name, report::terminal_curve(chart, options));
}

void write_whatif_page(const advise::Answer& answer,
                       const std::vector<report::NamedTimeline>& timelines, const std::string& path,
                       const std::string& command, const std::vector<std::string>& sources) {
  report::Section section = report::section_of(drawable(answer), "What if");
  section.paragraphs = answer.notes;
  report::Page page{"What if", {}, command, LINERATE_VERSION, {section}};
  for (report::Section& one : report::sections_of(timelines)) page.sections.push_back(one);
  for (const std::string& source : sources)
    if (!source.empty()) page.sources.push_back(source);
  write_file_atomically(path, report::to_html(page));
}

}  // namespace linerate::cli
