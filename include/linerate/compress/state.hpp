// What codecs keep between steps, field by field. A step reads what the last one that counted left
// and writes next to it: to undo a step is to forget that, to accept it is a swap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace linerate::compress {

/// How another number of ranks goes on with a field.
enum class Passing : std::uint8_t {
  mean,  // every rank gets the mean over ranks
  same,  // alike on all ranks
  own,   // a rank's own affair, such as a counter: taken over as it is, in turn
  owed   // as mean, of what is not sent yet, in gradient units: another method's residual goes on
};

/// A field without its type.
/// Thread safety: as its codec: one thread at a time.
class KeptField {
 public:
  virtual ~KeptField() = default;
  /// The step counts.
  virtual void keep() = 0;
  /// It does not: now() is as it was.
  virtual void drop() = 0;
  /// Of now().
  virtual std::span<std::byte> bytes() = 0;
};

/// Numbers as the last step that counted left them, and as this one does: a vector of floats, or
/// one trivially copyable value.
/// Thread safety: as its codec: one thread at a time.
template <typename T>
class Kept : public KeptField {
 public:
  Kept() = default;
  /// Begins with `first`.
  explicit Kept(T first) : now_(std::move(first)), next_(now_) {}

  /// As the last step that counted left it.
  const T& now() const { return now_; }
  /// Written wholly by this step.
  T& next() {
    is_written_ = true;
    return next_;
  }
  /// Begins with what there is.
  T& changed() {
    if (!is_written_) next_ = now_;
    return next();
  }

  /// The step counts, or it does not. A field that it did not write stays.
  void keep() override {
    if (std::exchange(is_written_, false)) std::swap(now_, next_);
  }
  /// Forgets what the step wrote.
  void drop() override { is_written_ = false; }

  std::span<std::byte> bytes() override {
    if constexpr (std::is_same_v<T, std::vector<float>>) {
      return std::as_writable_bytes(std::span(now_));
    } else {
      static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T> ||
                    std::is_trivially_copyable_v<T>);
      return std::as_writable_bytes(std::span(&now_, 1));
    }
  }

 private:
  T now_{}, next_{};
  bool is_written_ = false;
};

/// A field of a codec, and what it is.
/// Thread safety: as its codec: one thread at a time.
struct StateField {
  /// `kept_` outlives the field.
  template <typename T>
  StateField(std::string name_, Passing passing_, Kept<T>& kept_)
      : name(std::move(name_)),
        passing(passing_),
        is_array(std::is_same_v<T, std::vector<float>>),
        kept(&kept_) {}

  std::string name;  // unique within a codec
  Passing passing;   // to another number of ranks
  bool is_array;     // floats, of the tensor's elements or of a factor's
  KeptField* kept;   // its numbers
};

/// A field in a checkpoint.
struct SavedField {
  std::string name;                // StateField's
  Passing passing = Passing::own;  // StateField's
  bool is_array = false;           // StateField's
  std::vector<std::byte> bytes;    // its numbers, as they lie in memory

  bool operator==(const SavedField&) const = default;
};
/// All fields of a codec.
using SavedState = std::vector<SavedField>;

}  // namespace linerate::compress
