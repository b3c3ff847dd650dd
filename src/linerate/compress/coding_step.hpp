// The work of an encode or decode task of a Plan, as its operation tells it: "powersgd(rank=4,
// round=1)".
#pragma once

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

}  // namespace linerate::compress
