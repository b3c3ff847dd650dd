// The network as K-FAC's searches see it: one transfer after the other.
#pragma once

namespace linerate::plan {

/// What goes over the channel: when it is ready, and its seconds at full speed.
struct Transfer {
  double ready_s = 0, seconds = 0;
};

/// A transfer progresses `slowdown` times slower before `slow_until_s`: while ranks compute, if the
/// Cluster says that communication and computation contend. An example: slowdown 2 until 7 ms. A
/// transfer of 4 ms that starts at 3 ms has done 2 ms by then, and ends at 9 ms.
struct Channel {
  double slow_until_s = 0, slowdown = 1;

  /// When a transfer of `work_s` seconds at full speed ends. Never decreases in either argument.
  double end_of(double start_s, double work_s) const {
    if (slowdown <= 1 || start_s >= slow_until_s) return start_s + work_s;
    const double done_s = (slow_until_s - start_s) / slowdown;
    return work_s <= done_s ? start_s + work_s * slowdown : slow_until_s + (work_s - done_s);
  }
};

}  // namespace linerate::plan
