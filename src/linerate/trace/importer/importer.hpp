// One format of files: how it is recognised, what reads it, or what to do with such a file instead.
#pragma once

#include <any>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/importer/head.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/input/read_options.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

struct PerGradientOptions;

enum class Match : std::uint8_t {
  no,
  maybe,  // nothing in the head speaks against it, and nothing for it
  yes
};
inline Match yes_if(bool holds) { return holds ? Match::yes : Match::no; }

/// One file as its importer read it: a type that the importer's `join` knows.
struct FilePart {
  std::string file;
  std::any content;
};

struct Importer {
  /// As docs/importers.md calls the format.
  std::string_view name;
  Match (*matches)(const Head& head);
  /// What to do with a file that `explain` does not read; "{file}" stands for its name.
  std::string_view advice = {};
  /// One file of a job. Null: not read. Throws InputError naming the file.
  std::any (*read)(PaddedText text, const std::string& file, const ReadOptions& options) = nullptr;
  /// The files of one job, in the order given. Formats with the same `join` may be mixed.
  Job (*join)(std::vector<FilePart> parts) = nullptr;
  /// For a format whose marks may come after the head: is the whole text in it? Asked of every
  /// text, so the answer must be quick.
  bool (*claims)(std::string_view text) = nullptr;
  /// For logs that hold a Workload and no events.
  doc::Workload (*read_workload)(InputFile& input, const PerGradientOptions& options) = nullptr;
};

/// The `join` of formats whose every file is a whole Job.
Job only_job(std::vector<FilePart> parts);
/// Files that do not belong to one job.
[[noreturn]] void refuse_mixture();

}  // namespace linerate::trace
