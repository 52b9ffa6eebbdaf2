#include "daemon/qpn_allocator.h"

#include <gtest/gtest.h>

#include <set>

namespace ucm::daemon {
namespace {

using ipc::kQpnBlockSize;

TEST(QpnAllocator, HandsOutEveryBlockOnceAndNoneBelowTheFirst) {
  QpnAllocator qpns(12345);
  std::set<std::uint32_t> blocks;
  while (const auto first = qpns.allocate(1, 0)) {
    EXPECT_EQ(*first % kQpnBlockSize, 0u);
    EXPECT_GE(*first, ipc::kQpnFirst);
    EXPECT_LE(*first + kQpnBlockSize, ipc::kQpnEnd);
    EXPECT_TRUE(blocks.insert(*first).second);
  }
  EXPECT_EQ(blocks.size(), (ipc::kQpnEnd - ipc::kQpnFirst) / kQpnBlockSize);
}

TEST(QpnAllocator, ANumberComesAgainOnlyAfterAllOthers) {
  QpnAllocator qpns(7);
  const auto first = qpns.allocate(1, 0);
  std::size_t between = 0;
  for (;; ++between) {
    qpns.release_all(1);
    if (qpns.allocate(1, 0) == first) break;
  }
  EXPECT_EQ(between + 1, (ipc::kQpnEnd - ipc::kQpnFirst) / kQpnBlockSize);
}

TEST(QpnAllocator, TellsTheOwnerOfEveryNumberOfABlock) {
  QpnAllocator qpns(0);
  const std::uint32_t one = qpns.allocate(1, 0).value();
  const std::uint32_t two = qpns.allocate(2, 0).value();
  EXPECT_EQ(qpns.owner_of(one), 1u);
  EXPECT_EQ(qpns.owner_of(one + kQpnBlockSize - 1), 1u);
  EXPECT_EQ(qpns.owner_of(two), 2u);
  EXPECT_EQ(qpns.in_use(), 2 * kQpnBlockSize);
  qpns.release_all(1);
  EXPECT_EQ(qpns.in_use(), kQpnBlockSize);
  EXPECT_EQ(qpns.owner_of(one), 0u);
  EXPECT_EQ(qpns.owner_of(two), 2u);
  for (const std::uint32_t nobodys : {0u, 1u, ipc::kQpnEnd, 0xFFFFFFu, UINT32_MAX}) {
    EXPECT_EQ(qpns.owner_of(nobodys), 0u) << nobodys;
  }
}

TEST(QpnAllocator, CountsTheNumbersOfAnOwnerInTheOrderHandedOut) {
  QpnAllocator qpns(0);
  const std::uint32_t first = qpns.allocate(1, 0).value();
  static_cast<void>(qpns.allocate(2, 0));
  const std::uint32_t second = qpns.allocate(1, 1).value();
  EXPECT_EQ(qpns.index_of(first + 3), 3u);
  EXPECT_EQ(qpns.index_of(second + 5), kQpnBlockSize + 5);
}

}  // namespace
}  // namespace ucm::daemon
