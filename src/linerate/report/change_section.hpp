// A job before and after a change: what the step takes, what was predicted, and the loss at equal
// steps.
#pragma once

#include <optional>
#include <vector>

#include "linerate/doc/advice.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/named_losses.hpp"
#include "linerate/report/named_timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

/// What the section is made from, of those that a page has.
struct ChangeDocuments {
  const std::vector<NamedTimeline>& timelines;
  const std::vector<doc::Advice>& advice;
  const std::vector<NamedLosses>& losses;
};

/// The section that opens a page. It needs two measured Timelines of one Workload and as many ranks
/// under two strategies, or losses. The job before the change is the one that runs the advice's
/// strategy in use, else the first one given.
std::optional<Section> change_section(const ChangeDocuments& documents);

/// Loss over steps, or over the time that these steps take. A point is the mean of a block of
/// steps, so that a run of any length has about 40 points. Losses have the strategy's name if a
/// Timeline has their label. Over time there are only those with a measured Timeline.
LineChart loss_chart(const ChangeDocuments& documents, bool over_time);

}  // namespace linerate::report
