// Budgets of simulated time for storms. docs/storms.md has the figures themselves, beside those of Linux.
#include "sim/storms.h"

#include <gtest/gtest.h>

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

TEST(Storm, HandshakesOfManyClientsAtOnceTakeLessThanASecond) {  // field case 2.05
  for (const std::size_t connections : {240u, 2400u}) {
    auto storm = connect_storm(Policy::kUcm, {.clients = 240, .connections = connections, .loss_per_mille = 0});
    EXPECT_TRUE(storm.complete);
    EXPECT_LT(percentile(storm.times, 99), kSecond) << connections;
  }
}

TEST(Storm, TenThousandDisconnectsTakeLessThanTwoSeconds) {
  const auto storm = disconnect_storm(Policy::kUcm, {});
  EXPECT_TRUE(storm.complete);
  EXPECT_LT(storm.total, 2 * kSecond);
}

TEST(Storm, RequestsToADeadAddressTimeOutAndNobodyElseWaits) {  // field case 2.03
  auto storm = dead_address(Policy::kUcm, {});
  EXPECT_TRUE(storm.complete);
  EXPECT_GE(storm.total, 16 * 4608 * kMillisecond);
  EXPECT_LT(storm.total, 75 * kSecond);
  EXPECT_GT(storm.times.size(), 8000u);
  EXPECT_LT(percentile(storm.times, 100), 10 * kMillisecond);
}

TEST(Storm, SlowServerServesEverybodyWithoutMuchUselessWork) {  // field case 2.04
  for (const bool all_or_nothing : {false, true}) {
    const auto storm = slow_server(Policy::kUcm, {.start_spread = 10 * kMillisecond, .all_or_nothing = all_or_nothing});
    EXPECT_TRUE(storm.complete);
    EXPECT_LT(storm.total, 15 * kSecond);
    EXPECT_LT(wasted_per_cent(storm), 10);
  }
}

// To the nanosecond at once: the withdrawals of one moment are more than a receive queue holds, and those lost are
// requests that the server accepts in vain.
TEST(Storm, SlowServerServesEverybodyThatComesAtOnce) {
  for (const bool all_or_nothing : {false, true}) {
    const auto storm = slow_server(Policy::kUcm, {.all_or_nothing = all_or_nothing});
    EXPECT_TRUE(storm.complete);
    EXPECT_LT(storm.total, 15 * kSecond);
  }
}

}  // namespace
}  // namespace ucm::sim
