// A table of a page that a test holds, or writes anew where LINERATE_WRITE_LAUNCHES is set.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/file.hpp"

namespace linerate::simulated {

/// Rows "| `name` | number | number |" below the heading "## TITLE" of a page.
class PageTable {
 public:
  PageTable(std::string page, std::string title)
      : page_(std::move(page)), title_(std::move(title)) {
    bool is_inside = false;
    std::istringstream lines(read_file(page_));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("## ")) is_inside = line == "## " + title_;
      const auto end = line.find("` |");
      const bool is_row = is_inside && line.starts_with("| `") && end != std::string::npos;
      lines_.emplace_back(is_row ? line.substr(3, end - 3) : std::string(), line);
      if (!is_row) continue;
      std::istringstream cells(line.substr(end + 3));
      std::vector<std::int64_t>& numbers = said_[lines_.back().first];
      for (std::string cell; std::getline(cells, cell, '|');) numbers.push_back(std::stoll(cell));
    }
  }
  /// Rows that were found replace those of their names, and new ones follow the last row.
  ~PageTable() {
    if (!writes() || found_.empty()) return;
    std::ofstream page(page_);
    std::string last;
    for (const auto& [name, line] : lines_) last = name.empty() ? last : name;
    for (const auto& [name, line] : lines_) {
      const auto row = found_.find(name);
      page << (row == found_.end() ? line : row->second) << '\n';
      if (name.empty() || name != last) continue;
      for (const auto& [other, text] : found_)
        if (!said_.contains(other)) page << text << '\n';
    }
  }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, numbers] : said_) all.push_back(name);
    return all;
  }
  /// The page says at least so much. `room`: as many times the numbers are written.
  void hold(const std::string& name, const std::vector<std::int64_t>& found,
            double room = 1) const {
    const std::lock_guard lock(mutex_);
    std::string text = "| `" + name + "` |";
    for (const std::int64_t number : found)
      text += fmt::format(" {} |", std::ceil(room * static_cast<double>(number)));
    found_[name] = text;
    if (writes()) return;
    const auto row = said_.find(name);
    if (row == said_.end() || row->second.size() != found.size()) {
      ADD_FAILURE() << page_ << ", \"" << title_ << "\" should have the row\n" << text;
      return;
    }
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(found[i], row->second[i]) << page_ << ": `" << name << "`, number " << i + 1;
  }
  void expect_no_others() const {
    for (const auto& [name, numbers] : said_)
      EXPECT_TRUE(found_.contains(name)) << page_ << ": nothing is called `" << name << "`";
  }

 private:
  static bool writes() { return std::getenv("LINERATE_WRITE_LAUNCHES") != nullptr; }

  const std::string page_, title_;
  std::vector<std::pair<std::string, std::string>> lines_;  // a row's name, and the line
  std::map<std::string, std::vector<std::int64_t>> said_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> found_;  // rows by name
};

}  // namespace linerate::simulated
