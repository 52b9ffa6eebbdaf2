#include "daemon/multicast_groups.h"

#include <gtest/gtest.h>

namespace ucm::daemon {
namespace {

using Members = std::vector<MulticastGroups::Member>;
constexpr wire::MulticastGroup kGroup{wire::IpAddress::ipv4(0xEF010203), 3};
constexpr wire::MulticastGroup kOtherInterface{wire::IpAddress::ipv4(0xEF010203), 4};

TEST(MulticastGroups, TellsTheFirstMemberAndTheLast) {
  MulticastGroups groups;
  EXPECT_TRUE(groups.join(1, kGroup));
  EXPECT_FALSE(groups.join(2, kGroup));
  EXPECT_TRUE(groups.join(2, kOtherInterface));
  EXPECT_EQ(groups.members_of(kGroup), (Members{1, 2}));
  EXPECT_EQ(groups.members_of(kOtherInterface), (Members{2}));
  EXPECT_FALSE(groups.leave(1, kGroup));
  EXPECT_TRUE(groups.leave(2, kGroup));
  EXPECT_EQ(groups.members_of(kGroup), Members{});
}

TEST(MulticastGroups, AMemberLeavesAsOftenAsItHasJoined) {
  MulticastGroups groups;
  EXPECT_TRUE(groups.join(1, kGroup));
  EXPECT_FALSE(groups.join(1, kGroup));
  EXPECT_EQ(groups.joins_of(1), 2u);
  EXPECT_FALSE(groups.leave(1, kGroup));
  EXPECT_TRUE(groups.leave(1, kGroup));
  EXPECT_FALSE(groups.leave(1, kGroup)) << "not in it";
  EXPECT_EQ(groups.joins_of(1), 0u);
}

TEST(MulticastGroups, AMemberThatGoesEndsTheGroupsThatItWasAloneIn) {
  MulticastGroups groups;
  groups.join(1, kGroup);
  groups.join(1, kOtherInterface);
  groups.join(1, kOtherInterface);
  groups.join(2, kGroup);
  EXPECT_EQ(groups.leave_all(1), std::vector{kOtherInterface});
  EXPECT_EQ(groups.members_of(kGroup), Members{2});
  EXPECT_TRUE(groups.leave_all(3).empty());
}

}  // namespace
}  // namespace ucm::daemon
