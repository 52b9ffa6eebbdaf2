// The quick scenarios, complete: every state that they can get into.
#include <gtest/gtest.h>

#include <cstdio>

#include "explore/scenarios.h"

namespace ucm::explore {

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

namespace {

class Exploration : public testing::TestWithParam<Scenario> {};

INSTANTIATE_TEST_SUITE_P(Quick, Exploration, testing::ValuesIn(quick_scenarios()),
                         [](const auto& scenario) { return scenario.param.name; });

TEST_P(Exploration, EveryInvariantHoldsInEveryState) {
  const Report report = Explorer(GetParam()).run();
  EXPECT_EQ(report.violation, "") << report.trace;
  std::printf("%zu states, %zu transitions\n", report.states, report.transitions);
}

// Every connection gets into the same states, whether or not what nobody can tell apart is merged.
TEST(Exploration, MergingLosesNothing) {
  const Scenario scenarios[] = {
      {.name = "one", .destroys_idle = true, .losses = 1, .duplicates = 1},
      {.name = "two_held_back", .connects = {2, 0}, .window = 1, .destroys_idle = true},
      {.name = "two_same_qp", .connects = {2, 0}, .reuses_qp = true, .destroys_idle = true},
  };
  for (Scenario scenario : scenarios) {
    Explorer merged(scenario);
    scenario.unmerged = true;
    Explorer unmerged(scenario);
    for (Explorer* explorer : {&merged, &unmerged}) explorer->collect_connections();
    const Report few = merged.run();
    const Report many = unmerged.run();
    EXPECT_EQ(few.violation + many.violation, "") << scenario.name;
    EXPECT_LT(few.states, many.states) << scenario.name;
    EXPECT_EQ(merged.connections(), unmerged.connections()) << scenario.name;
  }
}

// Comm IDs are but names: with other ones everything is the same.
TEST(Exploration, DoesNotDependOnCommIds) {
  Scenario scenario{.name = "two_same_qp", .connects = {2, 0}, .reuses_qp = true, .destroys_idle = true};
  const Report before = Explorer(scenario).run();
  scenario.random_key = 7;
  const Report after = Explorer(scenario).run();
  EXPECT_EQ(before.states, after.states);
  EXPECT_EQ(before.transitions, after.transitions);
}

// Else the invariants would have nothing to look at.
TEST(Exploration, ReachesTheStatesOfTheEngine) {
  Explorer one({.name = "one_asynchronous", .asynchronous = true});
  Explorer two({.name = "two_held_back", .connects = {2, 0}, .window = 1, .destroys_idle = true});
  Explorer unread({.name = "two_unread", .connects = {2, 0}, .reads_late = true, .destroys_idle = true});
  for (Explorer* explorer : {&one, &two, &unread}) EXPECT_EQ(explorer->run().violation, "");
  for (std::size_t i = 0; i < cm::kStateCount; ++i) {
    const auto state = static_cast<cm::State>(i);
    EXPECT_TRUE(one.reached(state) || two.reached(state) || unread.reached(state)) << cm::name(state);
  }
}

}  // namespace
}  // namespace ucm::explore
