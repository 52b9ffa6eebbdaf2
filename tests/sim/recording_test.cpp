// Nodes of random scenarios are recorded, and their engines do the same again.
#include <gtest/gtest.h>

#include <deque>

#include "recording/player.h"
#include "sim/random_scenario.h"
#include "sim/ucm_node.h"
#include "support/recorded.h"

namespace ucm::sim {
namespace {

constexpr std::uint64_t kSeeds = 60;

// A file for each node, and for each of its lives.
std::vector<std::vector<std::uint8_t>> record_scenario(std::uint64_t seed) {
  std::deque<test::Recorded> recorded;
  const ScenarioOptions options{.wrap = [&](std::unique_ptr<Node> node) {
    test::Recorded& own = recorded.emplace_back();
    static_cast<UcmNode&>(*node).record([&own](Bytes record) {
      own.append(record);
      return true;
    });
    return node;
  }};
  const ScenarioResult result = run_random_scenario(seed, options);
  EXPECT_EQ(result.violation, "");
  std::vector<std::vector<std::uint8_t>> files;
  for (const test::Recorded& own : recorded) files.push_back(own.file());
  return files;
}

TEST(Recording, OfRandomScenariosIsPlayedWithoutADifference) {
  std::uint64_t inputs = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const auto& file : record_scenario(seed)) {
      test::Recorded copy;
      const auto player = recording::Player::open(file, [&](Bytes record) { copy.append(record); });
      ASSERT_TRUE(player) << player.error().message;
      while ((*player)->upcoming() != nullptr) (*player)->play();
      EXPECT_FALSE((*player)->error());
      EXPECT_FALSE((*player)->difference()) << "seed " << seed << ", input " << (*player)->played();
      EXPECT_EQ(copy.file(), file);
      inputs += (*player)->played();
    }
  }
  EXPECT_GT(inputs, 10'000u);
}

// A recording is a file that somebody sends: whatever it says, an engine must bear it.
TEST(Recording, WithChangedValuesAndRightChecksumsIsPlayedOrRefused) {
  Random random(7);
  std::uint64_t played = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    for (const auto& file : record_scenario(seed)) {
      auto changed = file;
      for (const Bytes record : test::records_of(file)) {
        if (!random.chance(1, 20)) continue;
        const MutableBytes bytes(changed.data() + (record.data() - file.data()), record.size());
        const std::size_t fields = recording::kFrameSize + 1;
        for (auto changes = random.below(4); changes > 0; --changes) {
          bytes[fields + random.below(bytes.size() - fields)] = static_cast<std::uint8_t>(random.next());
        }
        test::repair_checksum(bytes);
        // What no reader takes would end it here.
        if (!recording::parse(bytes)) std::copy(record.begin(), record.end(), bytes.begin());
      }
      const auto player = recording::Player::open(changed, [](Bytes) {});
      if (!player) continue;
      while ((*player)->upcoming() != nullptr) (*player)->play();
      played += (*player)->played();
    }
  }
  EXPECT_GT(played, 500u);
}

}  // namespace
}  // namespace ucm::sim
