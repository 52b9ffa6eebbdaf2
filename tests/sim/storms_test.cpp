// Budgets of simulated time for storms. docs/storms.md has the figures themselves, beside those of Linux.
#include "sim/storms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/report.h"

namespace ucm::sim {
namespace {

constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;
constexpr TimeNs kSecond = kNanosecondsPerSecond;

double wasted_per_cent(const Storm& storm) {
  return 100.0 * static_cast<double>(storm.wasted) / static_cast<double>(storm.accepts);
}

TEST(Storm, TenThousandConnectsToOneListenerTakeLessThanASecond) {
  auto storm = connect_storm(Policy::kUcm, {});
  EXPECT_TRUE(storm.complete);
  EXPECT_LT(storm.total, kSecond);
  EXPECT_LT(percentile(storm.times, 100), 20 * percentile(storm.times, 50));
}

TEST(Storm, HandshakesOfManyClientsAtOnceTakeLessThanASecond) {  // Field case 2.05
  for (const std::size_t connections : {240u, 2400u}) {
    auto storm = connect_storm(Policy::kUcm, {.clients = 240, .connections = connections, .loss_per_mille = 0});
    EXPECT_TRUE(storm.complete);
    EXPECT_LT(percentile(storm.times, 99), kSecond) << connections;
  }
}

TEST(Storm, FullMeshOfTheProcessesOfTwoHostsNeverStalls) {  // Field case 2.06
  auto storm = connect_storm(Policy::kUcm, {.clients = 1, .connections = 192 * 192, .loss_per_mille = 0});
  EXPECT_TRUE(storm.complete);
  (void)percentile(storm.times, 100);  // sorts
  for (std::size_t i = 1; i < storm.times.size(); ++i) {
    ASSERT_LT(storm.times[i] - storm.times[i - 1], kSecond) << "after " << i;
  }
}

// A host has thousands of disconnections in progress, with a peer that is gone, and accepts meanwhile.
TEST(Storm, DisconnectionsInProgressDelayNoAccept) {  // Field case 2.08
  const auto storm = disconnects_in_progress({});
  EXPECT_TRUE(storm.complete);
  EXPECT_GT(storm.times.size(), 100u);
  EXPECT_LT(*std::max_element(storm.times.begin(), storm.times.end()), kMillisecond);
}

TEST(Storm, TenThousandDisconnectsTakeLessThanTwoSeconds) {  // Field case 3.01
  const auto storm = disconnect_storm(Policy::kUcm, {});
  EXPECT_TRUE(storm.complete);
  EXPECT_LT(storm.total, 2 * kSecond);
}

TEST(Storm, RequestsToADeadAddressTimeOutAndNobodyElseWaits) {  // Field case 2.03
  auto storm = dead_address(Policy::kUcm, {});
  EXPECT_TRUE(storm.complete);
  EXPECT_GE(storm.total, 16 * 4608 * kMillisecond);
  EXPECT_LT(storm.total, 75 * kSecond);
  EXPECT_GT(storm.times.size(), 8000u);
  EXPECT_LT(percentile(storm.times, 100), 10 * kMillisecond);
}

TEST(Storm, SlowServerServesEverybodyWithoutMuchUselessWork) {  // Field case 2.04
  // To the nanosecond at once, too: the withdrawals of one moment are more than a receive queue holds.
  for (const TimeNs spread : {TimeNs{0}, 10 * kMillisecond}) {
    for (const bool all_or_nothing : {false, true}) {
      constexpr unsigned kSeeds = 5;
      double sum = 0;
      for (unsigned seed = 1; seed <= kSeeds; ++seed) {
        SCOPED_TRACE("spread " + std::to_string(spread) + ", all or nothing " + std::to_string(all_or_nothing) +
                     ", seed " + std::to_string(seed));
        const auto storm =
            slow_server(Policy::kUcm, {.start_spread = spread, .all_or_nothing = all_or_nothing, .seed = seed});
        EXPECT_TRUE(storm.complete);
        EXPECT_LT(storm.total, 15 * kSecond);
        EXPECT_LT(wasted_per_cent(storm), all_or_nothing ? 13 : 5);
        sum += wasted_per_cent(storm);
      }
      EXPECT_LT(sum / kSeeds, 10);
    }
  }
}

}  // namespace
}  // namespace ucm::sim
