#include "client/qpn_pool.h"

#include <gtest/gtest.h>

namespace ucm::client {
namespace {

TEST(QpnPool, GivesOutEveryNumberOfABlockOnce) {
  QpnPool pool;
  EXPECT_FALSE(pool.take(0));
  pool.add_block(0x1000, 64, 0);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(pool.take(0), 0x1000 + i);
  EXPECT_FALSE(pool.take(0));
}

TEST(QpnPool, AFreedNumberRestsBeforeItIsUsedAgain) {
  QpnPool pool;
  pool.add_block(0x1000, 1, 0);
  const std::uint32_t qpn = pool.take(0).value();
  pool.give_back(100, qpn);
  EXPECT_FALSE(pool.take(100 + QpnPool::kReuseDelayNs - 1));
  EXPECT_EQ(pool.take(100 + QpnPool::kReuseDelayNs), qpn);
}

TEST(QpnPool, WithoutANewBlockTheOneThatRestedLongestIsTaken) {
  QpnPool pool;
  pool.add_block(0x1000, 2, 0);
  const std::uint32_t first = pool.take(0).value();
  const std::uint32_t second = pool.take(0).value();
  pool.give_back(10, second);
  pool.give_back(20, first);
  EXPECT_EQ(pool.take_oldest(), second);
}

TEST(QpnPool, KnowsWhereThePeersOfItsNumbersStand) {
  QpnPool pool;
  pool.add_block(0x1000, 64, 128);
  EXPECT_EQ(pool.table_index_of(0x1003), 131u);
  EXPECT_FALSE(pool.table_index_of(0x2000));
}

}  // namespace
}  // namespace ucm::client
