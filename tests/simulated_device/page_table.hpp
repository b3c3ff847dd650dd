// A table of a page of the docs that a test holds.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "linerate/core/file.hpp"

namespace linerate::simulated {

/// Rows "| `name` | number | number |" below the heading "## TITLE" of a page. What was found is
/// printed as such a table when this object goes, so that the page can be renewed.
class PageTable {
 public:
  PageTable(std::string page, std::string title)
      : page_(std::move(page)), title_(std::move(title)) {
    std::istringstream lines(read_file(page_));
    std::string line;
    while (std::getline(lines, line) && line != "## " + title_) {
    }
    while (std::getline(lines, line) && !line.starts_with("## ")) {
      const auto end = line.find("` |");
      if (!line.starts_with("| `") || end == std::string::npos) continue;
      std::istringstream cells(line.substr(end + 3));
      std::vector<std::int64_t>& numbers = said_[line.substr(3, end - 3)];
      for (std::string cell; std::getline(cells, cell, '|');) numbers.push_back(std::stoll(cell));
    }
  }
  ~PageTable() {
    if (!printed_.empty()) fmt::print("## {}\n{}", title_, printed_);
  }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, numbers] : said_) all.push_back(name);
    return all;
  }
  /// The page says at least so much.
  void hold(const std::string& name, const std::vector<std::int64_t>& found) const {
    const std::lock_guard lock(mutex_);
    printed_ += "| `" + name + "` |";
    for (const std::int64_t number : found) printed_ += fmt::format(" {} |", number);
    printed_ += "\n";
    held_.insert(name);
    const auto row = said_.find(name);
    if (row == said_.end() || row->second.size() != found.size()) {
      ADD_FAILURE() << page_ << ", \"" << title_ << "\": no such row as the last one printed below";
      return;
    }
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_LE(found[i], row->second[i]) << page_ << ": `" << name << "`, number " << i + 1;
  }
  void expect_no_others() const {
    for (const auto& [name, numbers] : said_)
      EXPECT_TRUE(held_.contains(name)) << page_ << ": nothing is called `" << name << "`";
  }

 private:
  const std::string page_, title_;
  std::map<std::string, std::vector<std::int64_t>> said_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> held_;
  mutable std::string printed_;
};

}  // namespace linerate::simulated
