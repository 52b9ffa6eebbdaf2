#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "cm/slab.h"
#include "cm/slot_table.h"

namespace ucm::cm {
namespace {

TEST(SlotTable, AgreesWithAMapUnderRandomOperationsAndCollidingHashes) {
  Random random(5);
  SlotTable table;
  std::map<std::uint32_t, std::uint32_t> model;  // slot -> hash
  for (int step = 0; step < 50000; ++step) {
    const auto slot = static_cast<std::uint32_t>(random.below(300));
    const auto hash = static_cast<std::uint32_t>(random.below(40) * 7);
    if (model.contains(slot)) {
      table.erase(model[slot], slot);
      model.erase(slot);
    } else {
      table.insert(hash, slot);
      model[slot] = hash;
    }
    ASSERT_EQ(table.size(), model.size());
    const auto probe = static_cast<std::uint32_t>(random.below(300));
    const auto probe_hash = model.contains(probe) ? model[probe] : hash;
    const auto found = table.find(probe_hash, [&](std::uint32_t candidate) { return candidate == probe; });
    ASSERT_EQ(found, model.contains(probe) ? probe : SlotTable::kNone);
  }
}

TEST(Slab, ReusesTheLastOneGivenBack) {
  Slab<int> slab;
  const auto a = slab.take();
  const auto b = slab.take();
  EXPECT_NE(a, b);
  slab.give_back(a);
  EXPECT_EQ(slab.in_use(), 1u);
  EXPECT_EQ(slab.take(), a);
  EXPECT_EQ(slab.capacity(), 2u);
}

}  // namespace
}  // namespace ucm::cm
