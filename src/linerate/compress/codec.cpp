// The part of Codec and Compressor that is the same for all methods. It finds the phase of a step,
// keeps or drops a step, saves and loads, and counts the bytes kept.
#include "linerate/compress/codec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

std::string names_of_fields(const auto& fields) {
  std::string names;
  for (const auto& field : fields) names += (names.empty() ? "\"" : ", \"") + field.name + "\"";
  return names.empty() ? "none" : names;
}

/// Checks a codec's fields in a checkpoint against those that the codec has. Names and their order
/// must agree, and the bytes of each field. Each number of an array must be finite. A NaN in a
/// residual would otherwise stay in every later step.
void check_fields(const std::vector<StateField>& expected, const SavedState& found) {
  const auto same_name = [](const StateField& e, const SavedField& f) { return e.name == f.name; };
  if (!std::equal(expected.begin(), expected.end(), found.begin(), found.end(), same_name))
    throw InputError("checkpoint",
                     fmt::format("state of a compressor: expected the fields {}, found {}",
                                 names_of_fields(expected), names_of_fields(found)));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t bytes = expected[i].kept->bytes().size();
    if (found[i].bytes.size() != bytes)
      throw InputError("checkpoint",
                       fmt::format("state of a compressor, \"{}\": expected {} bytes, found {}",
                                   found[i].name, bytes, found[i].bytes.size()));
    if (!found[i].is_array) continue;
    if (!all_finite(floats_in(found[i].bytes)))
      throw InputError(
          "checkpoint",
          fmt::format("state of a compressor, \"{}\": a number is not finite", found[i].name));
  }
}

}  // namespace

/// Example: a warm-up of two phases with 100 and 50 steps, then a cycle of two. Steps 0 to 99 have
/// phase 0, steps 100 to 149 phase 1. Step 150 has phase 2, step 151 phase 3, and step 152 phase 2
/// again.
int Phases::of_step(std::int64_t step) const {
  int phase = 0;
  for (const Phase& warm : warm_up) {
    if (step < warm.steps) return phase;
    step -= warm.steps;
    ++phase;
  }
  return phase + static_cast<int>(step % static_cast<std::int64_t>(cycle.size()));
}

const std::string& Phases::name(int phase) const {
  const auto p = to_index(phase);
  return p < warm_up.size() ? warm_up[p].name : cycle[p - warm_up.size()].name;
}

std::vector<Round> Compressor::rounds(const Shape& shape, int) const { return rounds(shape); }

void Codec::keep() {
  for (const StateField& field : state()) field.kept->keep();
}

void Codec::drop() {
  for (const StateField& field : state()) field.kept->drop();
}

SavedState Codec::save() {
  SavedState saved;
  for (const StateField& field : state()) {
    const std::span<const std::byte> bytes = field.kept->bytes();
    saved.push_back({field.name, field.passing, field.is_array, {bytes.begin(), bytes.end()}});
  }
  return saved;
}

/// The names and sizes are checked before anything changes. Whether the values make sense can be
/// asked only once they are in place, because is_sane() reads the codec's own members. So the state
/// from before is put back if they do not.
void Codec::load(const SavedState& saved) {
  const std::vector<StateField> fields = state();
  check_fields(fields, saved);
  const SavedState before = save();
  const auto write = [&](const SavedState& from) {
    for (std::size_t i = 0; i < fields.size(); ++i)
      std::copy(from[i].bytes.begin(), from[i].bytes.end(), fields[i].kept->bytes().begin());
  };
  drop();
  write(saved);
  if (is_sane()) return;
  write(before);
  throw InputError("checkpoint", "state of a compressor: a number is out of range");
}

/// Twice, because the residual and each field exist in two copies. The last step that counts left
/// one, and the present step writes the other.
std::int64_t kept_bytes(const Compressor& compressor, const Shape& shape) {
  if (compressor.rounds(shape).empty()) return 0;
  const std::int64_t residual =
      keeps_residual(compressor) ? shape.elements * size_of(DType::f32) : 0;
  return 2 * (residual + compressor.remembered_bytes(shape));
}

}  // namespace linerate::compress
