// Fits the cost of a collective to measured times: rows of any log -> doc::CollectiveCost with its
// own error.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "linerate/calibrate/fit_options.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// Fits `measured.samples` (any order; repeated sizes become their median). The curve joins the
/// samples by straight lines, except outliers (curve.hpp). error_mean and error_max are the
/// relative leave-one-out errors over the inner sizes (all of them up to 64, else 64 spread
/// evenly). The interval of a segment is Student's t (90 %) times the root mean square of the
/// leave-one-out errors next to it. It also holds the curves without one of the samples that are
/// left out. Between the sizes that bracket a switch it holds both regimes. Throws InputError,
/// naming `measured.source`: fewer than three sizes, no rank count, times that no link could reach.
/// A barrier has no sizes: the median of its times, with their spread.
doc::CollectiveCost fit_collective(const doc::CollectiveCost& measured, const FitOptions& options);

/// predicted / measured - 1 of a sample that the fit did not see.
struct HeldOutError {
  std::size_t sample = 0;
  double relative_error = 0;
};

/// A fitted cost and the errors of its error_mean.
struct Fit {
  doc::CollectiveCost cost;
  std::vector<HeldOutError> errors;  // ascending by sample of cost.samples
};

/// fit_collective with the errors of its left-out samples.
Fit fit_with_errors(const doc::CollectiveCost& measured, const FitOptions& options);

/// Fits every table of a log. A table that is too short is left out, unless none remains. A note
/// says so, or a warning if `notes` is null.
///
/// The Cluster's network is the line of the largest messages between nodes, in seconds for a
/// message step and bytes/s for a link. All-reduces are preferred to other collectives. The link
/// inside a node is found in the same way, if the ranks of a node are known.
/// `line_rate_bytes_per_s` goes to the link between nodes if there is one, else to that inside.
doc::Cluster fit_cluster(const std::vector<doc::CollectiveCost>& tables, const FitOptions& options,
                         std::vector<std::string>* notes = nullptr);

}  // namespace linerate::calibrate
