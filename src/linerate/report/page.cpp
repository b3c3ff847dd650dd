// Document to HTML. A figure is an empty svg element with its data next to it, and the page's
// script fills it. Without the script the tables still hold all numbers.
#include "linerate/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "linerate/report/page_files.hpp"

namespace linerate::report {
namespace {

// A table scrolls by itself: on a phone the page must not become wider than the screen.
std::string html_of(const Table& table) {
  const auto cell = [&](const char* tag, std::size_t column, std::string_view text) {
    const char* align = table.head[column].starts_with('>') ? " class=\"r\"" : "";
    return fmt::format("<{0}{1}>{2}</{0}>", tag, align, escape(text));
  };
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t i = 0; i < table.head.size(); ++i)
    out += cell("th", i, table.head[i].substr(table.head[i].starts_with('>')));
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) out += cell("td", i, row[i]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

// "Numbers" is closed at first. It is for screen readers, for copying, and for paper, on which the
// page opens it.
std::string html_of(const Figure& f) {
  std::string out;
  if (!f.title.empty()) out += fmt::format("<h3>{}</h3>\n", escape(f.title));
  out += "<figure>\n";
  if (!f.caption.empty()) out += fmt::format("<figcaption>{}</figcaption>\n", escape(f.caption));
  if (f.drawing.json.empty())
    out += fmt::format("<p>{}</p>\n", escape(f.drawing.nothing));
  else
    out += fmt::format(
        "<svg role=\"img\" aria-label=\"{}\"></svg>\n"
        "<script type=\"application/json\">{}</script>\n",
        escape(f.drawing.name), f.drawing.json);
  if (f.data) out += "<details><summary>Numbers</summary>" + html_of(*f.data) + "</details>\n";
  return out + "</figure>\n";
}

// A page of one section has its name, which is not repeated.
std::string html_of(const Section& s, const std::string& page_title) {
  std::string out = "<section>\n";
  if (s.title != page_title) out += fmt::format("<h2>{}</h2>\n", escape(s.title));
  for (const std::string& p : s.paragraphs) out += fmt::format("<p>{}</p>\n", escape(p));
  for (const Figure& f : s.figures) out += html_of(f);
  if (s.table) out += html_of(*s.table);
  for (const std::string& n : s.notes) out += fmt::format("<p class=\"note\">{}</p>\n", escape(n));
  return out + "</section>\n";
}

std::ptrdiff_t sections_with(const std::string& figure, const Page& page) {
  return std::ranges::count_if(page.sections, [&figure](const Section& s) {
    return std::ranges::find(s.figures, figure, &Figure::title) != s.figures.end();
  });
}

}  // namespace

// Heads of tables are linerate's own words and stay as they are.
void for_each_text(Page& page, const std::function<void(std::string&)>& change) {
  const auto change_table = [&change](Table& table) {
    for (std::vector<std::string>& row : table.rows)
      for (std::string& cell : row) change(cell);
  };
  for (Section& section : page.sections) {
    for (std::string& paragraph : section.paragraphs) change(paragraph);
    for (std::string& note : section.notes) change(note);
    for (Figure& figure : section.figures) {
      change(figure.caption);
      change(figure.drawing.nothing);
      if (figure.data) change_table(*figure.data);
    }
    if (section.table) change_table(*section.table);
  }
}

// Quotes too: one function serves element text and attributes, so that no caller can choose the
// wrong one.
std::string escape(std::string_view text) {
  static const std::map<char, std::string_view> kEntities = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string out;
  for (const char c : text)
    if (const auto entity = kEntities.find(c); entity != kEntities.end())
      out += entity->second;
    else
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  return out;
}

std::string to_html(const Page& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n",
      escape(page.title), kPageStyle, escape(page.title));
  out +=
      "<noscript><p>The figures of this page are drawn by its script, which does not run here; the "
      "tables hold their numbers.</p></noscript>\n";
  for (Section s : page.sections) {
    // Figures of one title, in several sections, say whose they are.
    for (Figure& f : s.figures)
      if (sections_with(f.title, page) > 1) f.title += ": " + s.title;
    out += html_of(s, page.title);
  }
  if (page.sections.empty()) out += "<p>Nothing to report: no document was given.</p>\n";
  out += "<footer>\n";
  std::vector<std::string> sources;
  for (const std::string& source : page.sources)
    sources.push_back(fmt::format("<code>{}</code>", escape(source)));
  if (!sources.empty()) out += fmt::format("<p>From {}</p>\n", fmt::join(sources, ", "));
  if (!page.command.empty())
    out += fmt::format("<p>Made by <code>{}</code></p>\n", escape(page.command));
  if (!page.version.empty()) out += fmt::format("<p>linerate {}</p>\n", escape(page.version));
  out +=
      "<p>GB = 10⁹ bytes, Gbit = 10⁹ bits; rates are per direction. Exposed communication is what "
      "no "
      "computation of the same rank covers.</p>\n</footer>\n";
  return out + fmt::format("<script>{}</script>\n</body>\n</html>\n", kPageScript);
}

}  // namespace linerate::report
