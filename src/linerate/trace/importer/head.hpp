// The first bytes of a file, by which its format is known; its name says nothing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

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

}  // namespace linerate::trace
