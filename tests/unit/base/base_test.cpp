#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "base/deadline_heap.h"
#include "base/random.h"
#include "base/ring_queue.h"

namespace ucm {
namespace {

TEST(SipHash, MatchesTheReferenceVectorForEightBytes) {
  // The reference implementation's vector for key 00..0f and message 00..07.
  const RandomKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  EXPECT_EQ(siphash24(key, 0x0706050403020100), 0x93f5f5799a932462u);
}

TEST(TableHash, IsSipHash13) {
  // CPython's hash() of bytes(range(8)) and bytes(range(16)), with the key zero.
  EXPECT_EQ(table_hash({0, 0}, {0x0706050403020100}), 0xead411e67ebe2eeau);
  EXPECT_EQ(table_hash({0, 0}, {0x0706050403020100, 0x0f0e0d0c0b0a0908}), 0x8972188433a5c5b7u);
}

TEST(Random, SameKeySameSequenceAndACopyContinuesIt) {
  Random a(7), b(7);
  EXPECT_EQ(a.next(), b.next());
  Random copy = a;
  EXPECT_EQ(a.next(), copy.next());
  EXPECT_NE(Random(7).next(), Random(8).next());
}

TEST(Random, BelowStaysBelow) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(7), 7u);
}

TEST(DeadlineHeap, AgreesWithASortedMapUnderRandomOperations) {
  Random random(3);
  DeadlineHeap heap;
  std::map<DeadlineHeap::Key, TimeNs> model;
  for (int step = 0; step < 20000; ++step) {
    const auto key = static_cast<DeadlineHeap::Key>(random.below(50));
    switch (random.below(3)) {
      case 0: {
        const auto deadline = static_cast<TimeNs>(random.below(100));
        heap.set(key, deadline);
        model[key] = deadline;
        break;
      }
      case 1:
        heap.remove(key);
        model.erase(key);
        break;
      default:
        if (!heap.empty()) {
          const TimeNs earliest = heap.next();
          const DeadlineHeap::Key popped = heap.pop();
          ASSERT_EQ(model.at(popped), earliest);
          for (const auto& [k, deadline] : model) ASSERT_LE(std::pair(earliest, popped), std::pair(deadline, k));
          model.erase(popped);
        }
    }
    ASSERT_EQ(heap.size(), model.size());
    ASSERT_EQ(heap.deadline_of(key), model.contains(key) ? model[key] : kNever);
  }
}

TEST(RingQueue, KeepsOrderAcrossGrowthAndWrapping) {
  Random random(6);
  RingQueue<int> queue;
  std::deque<int> model;
  for (int step = 0; step < 20000; ++step) {
    if (random.chance(3, 5)) {
      queue.push(step);
      model.push_back(step);
    } else if (!model.empty()) {
      ASSERT_EQ(queue.front(), model.front());
      queue.pop_front();
      model.pop_front();
    }
    ASSERT_EQ(queue.size(), model.size());
    if (model.size() > 100) {
      while (!model.empty()) {
        ASSERT_EQ(queue.front(), model.front());
        queue.pop_front();
        model.pop_front();
      }
    }
  }
}

}  // namespace
}  // namespace ucm
