#include "linerate/report/page.hpp"

#include <fmt/format.h>

#include "linerate/report/page_style.hpp"

namespace linerate::report {
namespace {

template <typename Chart>
Figure both_layouts(std::string title, std::string caption, const Chart& chart,
                    std::string legend_html) {
  return {std::move(title),          std::move(caption),
          draw(chart, Layout::wide), draw(chart, Layout::narrow),
          std::move(legend_html),    std::nullopt};
}

std::string html_of(const Table& table) {
  const auto align = [&](std::size_t column) {
    return column < table.numbers.size() && table.numbers[column] ? " class=\"r\"" : "";
  };
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t i = 0; i < table.head.size(); ++i)
    out += fmt::format("<th{}>{}</th>", align(i), escape(table.head[i]));
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      out += fmt::format("<td{}>{}</td>", align(i), escape(row[i]));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string html_of(const Figure& f) {
  std::string out;
  if (!f.title.empty()) out += fmt::format("<h3>{}</h3>\n", escape(f.title));
  out += "<figure>\n";
  if (!f.caption.empty()) out += fmt::format("<figcaption>{}</figcaption>\n", escape(f.caption));
  out += f.legend_html;
  out += fmt::format("<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n", f.wide_svg,
                     f.narrow_svg);
  if (f.data) out += "<details><summary>Numbers</summary>" + html_of(*f.data) + "</details>\n";
  return out + "</figure>\n";
}

// A page of one section bears its name; it is not said twice.
std::string html_of(const Section& s, const std::string& page_title) {
  std::string out = "<section>\n";
  if (s.title != page_title) out += fmt::format("<h2>{}</h2>\n", escape(s.title));
  for (const std::string& p : s.paragraphs) out += fmt::format("<p>{}</p>\n", escape(p));
  for (const Figure& f : s.figures) out += html_of(f);
  if (s.table) out += html_of(*s.table);
  return out + "</section>\n";
}

}  // namespace

Figure figure(std::string title, std::string caption, const LineChart& chart) {
  return both_layouts(std::move(title), std::move(caption), chart, legend(chart));
}
Figure figure(std::string title, std::string caption, const TimelineChart& chart) {
  return both_layouts(std::move(title), std::move(caption), chart, legend(chart));
}
Figure figure(std::string title, std::string caption, const BarChart& chart) {
  return both_layouts(std::move(title), std::move(caption), chart, legend(chart));
}
Figure figure(std::string title, std::string caption, const HeatMap& map) {
  return both_layouts(std::move(title), std::move(caption), map, legend(map));
}
Figure figure(std::string title, std::string caption, const DotChart& chart) {
  return both_layouts(std::move(title), std::move(caption), chart, "");
}

std::string to_html(const Page& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      escape(page.title), kPageStyle, escape(page.title));
  for (const Section& s : page.sections) out += html_of(s, page.title);
  if (page.sections.empty()) out += "<p>Nothing to report: no document was given.</p>\n";
  out += "<footer>\n";
  if (!page.sources.empty()) out += "<p>From";
  for (std::size_t i = 0; i < page.sources.size(); ++i)
    out += fmt::format("{} <code>{}</code>", i == 0 ? "" : ",", escape(page.sources[i]));
  if (!page.sources.empty()) out += "</p>\n";
  if (!page.command.empty())
    out += fmt::format("<p>Made by <code>{}</code></p>\n", escape(page.command));
  if (!page.version.empty()) out += fmt::format("<p>linerate {}</p>\n", escape(page.version));
  return out +
         "<p>GB = 10⁹ bytes, Gbit = 10⁹ bits; rates are per "
         "direction.</p>\n</footer>\n</body>\n</html>\n";
}

}  // namespace linerate::report
