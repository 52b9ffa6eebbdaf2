#include "node/quotas.h"

#include <gtest/gtest.h>

namespace ucm::node {
namespace {

constexpr std::uint32_t kUser = 1000;

Limits small_limits() {
  Limits limits;
  limits.program = {.most = {1, 2, 2, 2, 2, 2}, .connects_per_s = 10};
  limits.user = {.most = {3, 3, 3, 3, 3, 3}, .connects_per_s = 16};
  return limits;
}

TEST(Quotas, OneProgramHasAShareAndItsUserAnother) {
  Quotas quotas(small_limits());
  EXPECT_TRUE(quotas.take(1, kUser, Resource::kIds));
  EXPECT_TRUE(quotas.take(1, kUser, Resource::kIds));
  EXPECT_FALSE(quotas.take(1, kUser, Resource::kIds)) << "the program's";
  EXPECT_EQ(quotas.room(1, kUser, Resource::kIds), 0u);
  EXPECT_EQ(quotas.room(2, kUser, Resource::kIds), 1u) << "what is left of the user's";
  EXPECT_TRUE(quotas.take(1, kUser, Resource::kListeners)) << "something else";
  EXPECT_TRUE(quotas.take(2, kUser, Resource::kIds));
  EXPECT_FALSE(quotas.take(2, kUser, Resource::kIds)) << "the user's";
  EXPECT_TRUE(quotas.take(3, kUser + 1, Resource::kIds)) << "another user";
  EXPECT_EQ(quotas.refused(Resource::kIds), 2u);
  EXPECT_EQ(quotas.refused(Resource::kListeners), 0u);
}

TEST(Quotas, WhatIsGivenBackCanBeTakenAgain) {
  Quotas quotas(small_limits());
  EXPECT_TRUE(quotas.take(1, kUser, Resource::kQueuePairs, 2));
  EXPECT_FALSE(quotas.take(2, kUser, Resource::kQueuePairs, 2));
  quotas.give_back(1, kUser, Resource::kQueuePairs, 2);
  quotas.forget(0, 1, kUser);
  EXPECT_TRUE(quotas.take(2, kUser, Resource::kQueuePairs, 2));
}

TEST(Quotas, OneSecondsWorthOfConnectionsComesAtOnceAndThenTheyComeAtTheRate) {
  Quotas quotas(small_limits());
  TimeNs now = 5 * kNanosecondsPerSecond;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(quotas.may_connect(now, 1, kUser)) << i;
  EXPECT_FALSE(quotas.may_connect(now, 1, kUser));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(quotas.may_connect(now, 2, kUser)) << i;
  EXPECT_FALSE(quotas.may_connect(now, 2, kUser)) << "the user's";
  EXPECT_TRUE(quotas.may_connect(now, 3, kUser + 1));
  quotas.forget(now, 1, kUser);
  EXPECT_FALSE(quotas.may_connect(now, 4, kUser)) << "a new program of a user who was too fast";
  now += kNanosecondsPerSecond / 16;
  EXPECT_TRUE(quotas.may_connect(now, 2, kUser));
  EXPECT_FALSE(quotas.may_connect(now, 2, kUser));
  EXPECT_EQ(quotas.refused_too_fast(), 4u);
}

TEST(Quotas, NewLimitsCountFromNowOn) {
  Quotas quotas(small_limits());
  EXPECT_TRUE(quotas.take(1, kUser, Resource::kIds));
  EXPECT_TRUE(quotas.take(1, kUser, Resource::kIds));
  Limits none;
  none.program = none.user = {};
  quotas.set_limits(none);
  EXPECT_FALSE(quotas.take(1, kUser, Resource::kIds));
  EXPECT_FALSE(quotas.may_connect(0, 1, kUser));
  quotas.give_back(1, kUser, Resource::kIds, 2);
}

}  // namespace
}  // namespace ucm::node
