// Private: Chakra execution traces, one file for each rank. The reader knows protobuf of schema
// 0.0.4 and the JSON form of its feeder. Process groups are in a file of their own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// One rank, before the members of its groups are known. Until join_chakra(), Communication::group
/// is an index into group_names, and the bytes of an all-gather or gather are the rank's own part.
struct ChakraTrace {
  RankActivity rank;
  std::vector<std::string> group_names;
  bool has_durations = false, has_starts = false;
  std::vector<std::string> notes;
};

/// {"1": [0, 1], ...}: ranks by pg_name.
using ChakraGroups = std::map<std::string, std::vector<std::int64_t>>;

/// Begins with a varint length and a GlobalMetadata with a version string?
bool is_chakra(std::string_view head);
/// Throws InputError for a schema that is not this one.
ChakraTrace read_chakra(std::string_view bytes, const std::string& name);
/// {"workload_graph": [...]}.
ChakraTrace read_chakra_json(PaddedText text, const std::string& name);
/// Throws InputError naming what is no list of ranks.
ChakraGroups read_chakra_groups(PaddedText text, const std::string& name);
/// All ranks of one job, in any order. Sizes of groups and totals of all-gathers come from the
/// groups; without them they stay unknown and a note says so.
Job join_chakra(std::vector<ChakraTrace> traces, const ChakraGroups& groups);

// Private: protobuf's wire format, by hand, because a trace needs a few fields only.

/// Reads protobuf's wire format. Every read is checked. After a bad one ok() is false for good, and
/// reads give 0 or nothing, so that a caller may check once at the end.
///
/// A field is a tag (number * 8 + type) and a value. Type 0 is a varint, 1 and 5 are 8 and 4 bytes,
/// 2 is a length and so many bytes.
class Wire {
 public:
  explicit Wire(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return !ok_ || at_ >= bytes_.size(); }
  std::size_t position() const { return at_; }

  /// Seven bits a byte, the lowest first; a set eighth bit says that more follow. 300 is ac 02.
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  /// A length and so many bytes, as a view into the text.
  std::string_view block() {
    const std::uint64_t n = varint();
    if (!ok_ || n > bytes_.size() - at_) return ok_ = false, std::string_view();
    const std::string_view block = bytes_.substr(at_, n);
    at_ += n;
    return block;
  }
  /// Field number and wire type of the next field.
  std::pair<std::uint64_t, int> tag() {
    const std::uint64_t t = varint();
    return {t >> 3, static_cast<int>(t & 7)};
  }
  /// Little-endian, 4 or 8 bytes.
  std::uint64_t fixed(int width) {
    std::uint64_t value = 0;
    if (to_index(width) > bytes_.size() - at_) return ok_ = false, 0;
    for (int i = 0; i < width; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[at_ + std::size_t(i)]))
               << (8 * i);
    at_ += to_index(width);
    return value;
  }
  void skip(int type) {
    switch (type) {
      case 0:
        varint();
        break;
      case 1:
        fixed(8);
        break;
      case 2:
        block();
        break;
      case 5:
        fixed(4);
        break;
      default:
        ok_ = false;
    }
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace linerate::trace
