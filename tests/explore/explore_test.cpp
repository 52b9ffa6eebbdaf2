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

// Else the invariants would have nothing to look at.
TEST(Exploration, ReachesTheStatesOfTheEngine) {
  Explorer one({.name = "one_asynchronous", .asynchronous = true});
  Explorer two({.name = "two_held_back", .connects = {2, 0}, .window = 1, .destroys_idle = true});
  EXPECT_EQ(one.run().violation, "");
  EXPECT_EQ(two.run().violation, "");
  for (std::size_t i = 0; i < cm::kStateCount; ++i) {
    const auto state = static_cast<cm::State>(i);
    // The application reads every request at once, so that none is queued.
    EXPECT_EQ(one.reached(state) || two.reached(state), state != cm::State::kReqQueued) << cm::name(state);
  }
}

}  // namespace
}  // namespace ucm::explore
