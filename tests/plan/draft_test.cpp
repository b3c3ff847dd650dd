#include "linerate/plan/draft.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::plan {
namespace {

using ::testing::ElementsAre;

// Told apart by their number of bytes.
doc::Task task(std::int64_t name, doc::Resource lane) { return {.resource = lane, .bytes = name}; }
doc::Task compute(std::int64_t name) { return task(name, doc::Resource::compute); }
doc::Task network(std::int64_t name) { return task(name, doc::Resource::network); }

std::vector<std::int64_t> order_of(Draft& draft) {
  doc::TaskGraph graph;
  draft.linearise(graph);
  std::vector<std::int64_t> names;
  for (const doc::Task& t : graph.tasks) names.push_back(t.bytes);
  return names;
}

TEST(Draft, InsertedTasksComeRightBeforeOrAfterTheGivenOne) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  draft.append(compute(2));
  draft.insert_after(a, compute(3));
  draft.insert_before(a, compute(4));
  EXPECT_THAT(order_of(draft), ElementsAre(4, 1, 3, 2));
}

TEST(Draft, InsertingAfterTheLastTaskMovesTheEndOfTheLane) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  const Handle b = draft.insert_after(a, compute(2));
  EXPECT_EQ(draft.last(doc::Resource::compute), b);
  EXPECT_EQ(draft.last(doc::Resource::network), kNoTask);
}

TEST(Draft, RemovingATaskKeepsTheOrderOfTheOthers) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  const Handle b = draft.append(compute(2));
  const Handle c = draft.append(compute(3));
  draft.remove(b);
  EXPECT_THAT(order_of(draft), ElementsAre(1, 3));
  draft.remove(a);
  draft.remove(c);
  EXPECT_THAT(order_of(draft), ElementsAre());
}

TEST(Draft, WhatWaitsForATaskFollowsItBeforeTheNextComputation) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  draft.append(compute(2));
  draft.wait(draft.append(network(3)), a);
  EXPECT_THAT(order_of(draft), ElementsAre(1, 3, 2));
}

TEST(Draft, LanesKeepTheirOrderWhateverIsReadyFirst) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  const Handle b = draft.append(compute(2));
  const Handle late = draft.append(network(3));
  const Handle early = draft.append(network(4));
  draft.wait(late, b);
  draft.wait(early, a);
  EXPECT_THAT(order_of(draft), ElementsAre(1, 2, 3, 4));
}

TEST(Draft, EdgesPointToWhereTasksWerePut) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  const Handle n = draft.append(network(2));
  draft.wait(n, draft.insert_before(a, compute(3)));
  draft.wait(n, a);
  doc::TaskGraph graph;
  draft.linearise(graph);
  EXPECT_EQ(draft.position(n), 2u);
  EXPECT_THAT(graph.predecessors(2), ElementsAre(0u, 1u));
}

TEST(Draft, ACircleIsFound) {
  Draft draft;
  const Handle a = draft.append(compute(1));
  const Handle b = draft.append(compute(2));
  const Handle n = draft.append(network(3));
  draft.wait(a, n);
  draft.wait(n, b);  // which stands behind a
  doc::TaskGraph graph;
  EXPECT_THROW(draft.linearise(graph), InternalError);
}

}  // namespace
}  // namespace linerate::plan
