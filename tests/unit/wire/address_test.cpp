#include "wire/address.h"

#include <gtest/gtest.h>

namespace ucm::wire {
namespace {

TEST(Address, EveryAddressOf127IsThisHostAndNoOtherPairIs) {
  const IpAddress one = IpAddress::ipv4(0x7f000001);
  const IpAddress two = IpAddress::ipv4(0x7f000002);
  const IpAddress outside = IpAddress::ipv4(0x0a4d0001);
  IpAddress one6;
  one6.bytes[15] = 1;
  EXPECT_TRUE(one.is_same_host(two));
  EXPECT_TRUE(outside.is_same_host(outside));
  EXPECT_FALSE(one.is_same_host(outside));
  EXPECT_FALSE(one.is_same_host(one6));
  EXPECT_FALSE(outside.is_same_host(IpAddress::ipv4(0x0a4d0002)));
}

}  // namespace
}  // namespace ucm::wire
