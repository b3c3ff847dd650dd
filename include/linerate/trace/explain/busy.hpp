// How long a rank was busy with what. Definitions: docs/explain.md.
#pragma once

namespace linerate::trace {

/// Lengths of interval unions on one rank, or their mean over ranks. idle = window - union of
/// all device activity; loading_idle is the part of it in which the host loads data.
struct Busy {
  double window_s = 0;
  double compute_s = 0, communication_s = 0, overlap_s = 0, exposed_s = 0, idle_s = 0;
  // exposed_s = transfer + wait + unsplit: data moved, waited for a later rank, or one of the two.
  double exposed_transfer_s = 0, exposed_wait_s = 0, exposed_unsplit_s = 0;
  double loading_idle_s = 0;
  // With ranks missing: exposed transfer is at most this (least duration over repetitions of the
  // same collective).
  double exposed_transfer_most_s = 0;
};

}  // namespace linerate::trace
