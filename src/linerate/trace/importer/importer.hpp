// The first bytes of a file, by which its format is known; its name says nothing.
#pragma once

#include <any>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/doc/workload.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// What a file begins with.
enum class HeadForm : std::uint8_t {
  text,          // anything but JSON, binary files included
  object,        // JSON: {
  event_object,  // { with "traceEvents" in it
  list,          // [{, or a list whose first element is not there yet
  nested_list    // [[
};

class Head {
 public:
  /// `bytes`: InputFile::head().
  explicit Head(std::string_view bytes);

  HeadForm form() const { return form_; }
  bool is_json() const { return form_ != HeadForm::text; }
  std::string_view bytes() const { return bytes_; }
  /// The same from the first character on that is neither blank nor a byte order mark.
  std::string_view text() const { return text_; }

  bool starts_with(std::string_view mark) const { return bytes_.starts_with(mark); }
  bool contains(std::string_view mark) const;
  bool contains_any(std::initializer_list<std::string_view> marks) const;
  /// Does it hold a Chrome event of this phase ("ph")?
  bool has_phase(char phase) const;
  /// Binary, and a message of Protocol buffers that begins with a block of field 1?
  bool is_protobuf() const;

 private:
  std::string_view bytes_, text_;
  HeadForm form_ = HeadForm::text;
};

// One format of files: how it is recognised, what reads it, or what to do with such a file instead.

struct PerGradientOptions;

struct Importer;

/// One file as its importer read it: a type that the importer's `join` knows.
struct FilePart {
  std::string file;
  std::any content;
  const Importer* importer = nullptr;
  bool truncated = false;  // its gzip stream ends early
};

struct Importer {
  /// As docs/importers.md calls the format.
  std::string_view name;
  bool (*matches)(const Head& head);
  /// What to do with a file that `explain` does not read; "{file}" stands for its name.
  std::string_view advice = {};
  /// One file of a job. Null: not read. Throws InputError naming the file.
  std::any (*read)(PaddedText text, const std::string& file, const Progress& progress) = nullptr;
  /// The files of one job, in the order given. Formats with the same `join` may be mixed.
  Job (*join)(std::vector<FilePart> parts) = nullptr;
  /// For a format whose marks may come after the head: is the whole text in it? Asked of every
  /// text, so the answer must be quick.
  bool (*claims)(std::string_view text) = nullptr;
  /// For logs that hold a Workload and no events.
  doc::Workload (*read_workload)(InputFile& input, const PerGradientOptions& options) = nullptr;
  /// Does the head also speak for it? Null: what matches is of the format.
  bool (*is_sure)(const Head& head) = nullptr;
};

/// The `join` of formats whose every file is a whole Job.
Job only_job(std::vector<FilePart> parts);
/// Files that do not belong to one job.
[[noreturn]] void refuse_mixture();

// Which rank each file of a job is of.

struct RankOfFile {
  int rank = -1;  // -1: neither the file nor its name says
  std::string file;
};

/// Throws InputError naming a file of several that states no rank, or that of another file unless
/// files of one rank may be joined.
void require_ranks(const std::vector<RankOfFile>& files, bool may_repeat = false);

}  // namespace linerate::trace
