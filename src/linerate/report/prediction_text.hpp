// Predictions as a table for a terminal and as CSV.
#pragma once

#include <string>

#include "linerate/doc/prediction.hpp"

namespace linerate::report {

/// A line a combination, then the job, then the notes.
std::string to_text(const doc::Predictions& predictions);
/// RFC 4180, units in the column names; what is unknown is empty. Without the notes.
std::string to_csv(const doc::Predictions& predictions);

/// Scaling factor over bandwidth, a picture a rank count; in braille if the locale shows Unicode,
/// else in ASCII. Throws UsageError if no prediction has a bandwidth.
std::string to_curves(const doc::Predictions& predictions, const std::string& locale);

}  // namespace linerate::report
