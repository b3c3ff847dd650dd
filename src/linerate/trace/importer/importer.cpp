#include "linerate/trace/importer/importer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "linerate/core/error.hpp"

namespace linerate::trace {

Job only_job(std::vector<FilePart> parts) {
  if (parts.size() > 1) refuse_mixture();
  return std::any_cast<Job>(std::move(parts.front().content));
}

void refuse_mixture() {
  throw UsageError(
      "expected one timeline, or the traces of all ranks of one job in one format, found a "
      "mixture");
}

namespace {

constexpr std::string_view kHeadBlanks = " \t\r\n";

HeadForm form_of(std::string_view text) {
  if (text.starts_with('{'))
    return text.find("\"traceEvents\"") == std::string_view::npos ? HeadForm::object
                                                                  : HeadForm::event_object;
  if (!text.starts_with('[')) return HeadForm::text;
  const std::size_t second = text.find_first_not_of(kHeadBlanks, 1);
  if (second == std::string_view::npos) return HeadForm::list;
  if (text[second] == '[') return HeadForm::nested_list;
  // "[1,0]<stdout>: ..." is the tag of mpirun, and "[2024-...]" a time stamp: text.
  return text[second] == '{' || text[second] == ']' ? HeadForm::list : HeadForm::text;
}

}  // namespace

Head::Head(std::string_view bytes)
    : bytes_(bytes),
      text_(bytes.substr(std::min(bytes.find_first_not_of(" \t\r\n\xef\xbb\xbf"), bytes.size()))),
      form_(form_of(text_)) {}

bool Head::contains(std::string_view mark) const {
  return text_.find(mark) != std::string_view::npos;
}

bool Head::contains_any(std::initializer_list<std::string_view> marks) const {
  return std::ranges::any_of(marks, [this](std::string_view mark) { return contains(mark); });
}

bool Head::has_phase(char phase) const {
  for (std::size_t at = text_.find("\"ph\""); at != std::string_view::npos;
       at = text_.find("\"ph\"", at + 4)) {
    const std::size_t quote = text_.find_first_not_of(" :", at + 4);
    if (quote != std::string_view::npos && text_.substr(quote).starts_with('"') &&
        quote + 2 < text_.size() && text_[quote + 1] == phase && text_[quote + 2] == '"')
      return true;
  }
  return false;
}

bool Head::is_protobuf() const {
  return bytes_.starts_with('\n') && std::ranges::any_of(bytes_, [](char c) {
           return (c >= 0 && c < ' ' && kHeadBlanks.find(c) == std::string_view::npos) || c < 0;
         });
}

void require_ranks(const std::vector<RankOfFile>& files, bool may_repeat) {
  if (files.size() < 2) return;
  std::map<int, std::string> seen;
  for (const auto& [rank, file] : files) {
    if (rank < 0)
      throw InputError(file,
                       "expected its rank in distributedInfo or in the file name, found neither; "
                       "name the files rank0..., rank1..., or worker0...");
    if (const auto [other, fresh] = seen.try_emplace(rank, file); !fresh && !may_repeat)
      throw InputError(file, fmt::format("is of rank {}, and so is {}; give each rank's trace once",
                                         rank, other->second));
  }
}

}  // namespace linerate::trace
