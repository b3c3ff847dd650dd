// The work of an encode or decode task of a Plan, as its operation tells it: "powersgd(rank=4,
// round=1)".
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/option_reader.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::compress {

struct CodingStep {
  doc::Component compressor;  // as make_compressor() takes it
  int round = 0;              // of an encode
  int phase = -1;             // of Compressor::phases(); -1: it has only one
  bool two_phase = false;     // gathered payloads take the two-phase exchange

  doc::Component to_operation() const;
  /// Throws UsageError for what to_operation() does not write.
  static CodingStep of(const doc::Component& operation);
};

// The option dense_below=, which every compressor has: smaller tensors travel dense. Its text is in
// registry.cpp, which makes compressors.
//
// A strategy's text and a Plan's operation differ by its default. "topk" of a strategy means
// topk(dense_below=4096), as the compressor says (Compressor::dense_below()), and the planner
// writes that into the Plan. "topk" of a Plan codes tensors of every size, so a Plan of older times
// keeps its meaning.

inline constexpr std::string_view kDenseBelow = "dense_below";

/// A compressor that was made from these options, by its option dense_below=. The caller refuses
/// what was not read. Null stays null.
std::unique_ptr<const Compressor> with_dense_below(std::unique_ptr<const Compressor> compressor,
                                                   doc::OptionReader& options);

/// A strategy's compressor as a Plan's operations name it: with its default, and without
/// dense_below=0.
doc::Component as_planned(doc::Component component);
/// The component without the option, which does not change how a coded tensor is coded.
doc::Component without_dense_below(doc::Component component);

// Decides how many stages of fitting a tensor gets, by the results of the last calls.

/// After every five calls the average of achieved / target is judged. If it is off by more than
/// 0.2, one stage more or fewer is tried. The trial stays if it is better, else the direction
/// turns. This is descent. The published rule takes fewer stages if too much is selected. On heavy
/// tails that rule runs the wrong way and stays there. If neither neighbour was better the control
/// rests for some windows, because a trial costs five steps.
struct StageControl {
  std::int32_t stages = 2;
  std::int32_t direction = 1;
  std::int32_t calls = 0;       // of the present window
  std::int32_t is_trial = 0;    // the present window tries a neighbour
  std::int32_t failed = 0;      // trials in a row
  std::int32_t rests_left = 0;  // windows
  double sum = 0;               // of the present window
  double score_before = 0;      // of the stages that the trial may fall back to

  /// Takes in achieved / target of a call.
  void observe(double ratio, int most_stages);
  /// Whether observe() can reach these numbers.
  bool is_sane(int most_stages) const;

 private:
  void finish_window(double score, int most_stages);
  void fall_back();
  void try_neighbour(double score, int most_stages);
};

}  // namespace linerate::compress
