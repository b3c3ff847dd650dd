// The fields that codecs keep between steps. A step reads the numbers of the last step that
// counted, and writes its own to a second copy. To undo the step is to forget the second copy. To
// accept it is to swap both.
//
// Example: steps 1, 2 and 3 each add 1 to a field, and step 2 is dropped, because a rank met an
// infinity. The field is 0, then 1 after step 1. Step 2 writes 2 to the copy, which is forgotten.
// Step 3 reads 1 and writes 2, and 2 is what a checkpoint then has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace linerate::compress {

/// How a field goes on when a checkpoint is loaded by another number of ranks.
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
  /// The bytes of now().
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
  /// The copy that this step writes, all of it.
  T& next() {
    is_written_ = true;
    return next_;
  }
  /// The copy that this step changes: it begins with now()'s numbers.
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
  /// Of another kind than Kept. `kept_` outlives the field.
  StateField(std::string name_, Passing passing_, KeptField& kept_, bool is_array_)
      : name(std::move(name_)), passing(passing_), is_array(is_array_), kept(&kept_) {}

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
