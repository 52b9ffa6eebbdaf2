// An engine gets what another one got, and what differs is found.
#include "recording/player.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "support/recorded.h"

namespace ucm::recording {
namespace {

constexpr auto kOwn = wire::IpAddress::ipv4(0x0a000001);
constexpr auto kPeer = wire::IpAddress::ipv4(0x0a000002);
constexpr TimeNs kMs = kNanosecondsPerMillisecond;

void poll_all(RecordedEngine& engine) {
  while (engine.poll_event()) {
  }
  while (engine.poll_sidr_event()) {
  }
  while (engine.poll_packet() != nullptr) {
  }
}

// A request that nobody answers is repeated; one is refused.
std::vector<std::uint8_t> a_recording() {
  test::Recorded recorded;
  RecordedEngine engine(cm::Config{});
  engine.record(kMs, {.random_key = {3, 4}}, [&](Bytes record) {
    recorded.append(record);
    return true;
  });
  const cm::Path path{.local = kOwn, .remote = kPeer};
  const auto connection = engine.connect(2 * kMs, {.path = path, .service_id = 7, .params = {.qpn = 5}});
  EXPECT_TRUE(connection);
  poll_all(engine);
  EXPECT_FALSE(engine.connect(3 * kMs, {.path = path, .path_mtu = 6}));
  TimeNs now = engine.next_deadline();
  for (int i = 0; i < 3; ++i, now = engine.next_deadline()) {
    engine.on_deadline(now);
    poll_all(engine);
  }
  engine.destroy(now, *connection);
  poll_all(engine);
  engine.on_deadline(now);
  return recorded.file();
}

struct Played {
  std::uint64_t inputs = 0;
  std::optional<Player::Difference> difference{};
  std::optional<Error> error{};
};
Played play(Bytes file, std::function<void(Bytes)> copy = nullptr) {
  const auto player = Player::open(file, std::move(copy));
  if (!player) return {.error = player.error()};
  while ((*player)->upcoming() != nullptr) (*player)->play();
  return {(*player)->played(), (*player)->difference(), (*player)->error()};
}

// The records of a file again, changed by `change`, which gets the number of each; false: it is left out.
std::vector<std::uint8_t> changed(Bytes file, const std::function<bool(std::size_t, Item&)>& change) {
  test::Recorded recorded;
  Reader reader(file);
  for (std::size_t i = 0;; ++i) {
    auto item = reader.next();
    EXPECT_TRUE(item);
    if (!item || std::holds_alternative<End>(item->record)) return recorded.file();
    if (!change(i, *item)) continue;
    std::vector<std::uint8_t> bytes;
    emit(item->record, item->drained, bytes);
    recorded.append(bytes);
  }
}
bool is_sent(const Item& item) { return std::holds_alternative<Sent>(item.record); }

TEST(Player, AnEngineDoesTheSameAgain) {
  const auto file = a_recording();
  const Played played = play(file);
  EXPECT_EQ(played.inputs, 7u);
  EXPECT_FALSE(played.difference);
  EXPECT_FALSE(played.error) << played.error->message;
}

TEST(Player, WhatItMakesIsTheRecordingAgain) {
  const auto file = a_recording();
  test::Recorded again;
  play(file, [&](Bytes record) { again.append(record); });
  EXPECT_EQ(again.file(), file);
}

TEST(Player, FindsAnOutputThatIsAnotherOne) {
  const auto file = changed(a_recording(), [sent = 0](std::size_t, Item& item) mutable {
    if (is_sent(item) && ++sent == 3) std::get<Sent>(item.record).mad[100] ^= 1;
    return true;
  });
  const Played played = play(file);
  ASSERT_TRUE(played.difference);
  EXPECT_EQ(played.difference->input, 4u);  // two calls, two deadlines
  ASSERT_TRUE(played.difference->recorded);
  EXPECT_TRUE(is_sent(*played.difference->recorded));
  EXPECT_TRUE(is_sent(*parse(played.difference->played)));
  EXPECT_EQ(played.inputs, 4u) << "it goes on";
}

TEST(Player, FindsAnOutputThatTheRecordingDoesNotHave) {
  const auto file =
      changed(a_recording(), [sent = 0](std::size_t, Item& item) mutable { return !is_sent(item) || ++sent != 2; });
  const Played played = play(file);
  ASSERT_TRUE(played.difference);
  EXPECT_EQ(played.difference->input, 3u);
  EXPECT_FALSE(played.difference->recorded);
  EXPECT_TRUE(is_sent(*parse(played.difference->played)));
}

TEST(Player, FindsAnOutputThatOnlyTheRecordingHas) {
  // The second deadline comes too early for a repetition.
  const auto file = changed(a_recording(), [deadlines = 0](std::size_t, Item& item) mutable {
    if (auto* const deadline = std::get_if<Deadline>(&item.record); deadline != nullptr && ++deadlines == 1) {
      deadline->now = 4 * kMs;
    }
    return true;
  });
  const Played played = play(file);
  ASSERT_TRUE(played.difference);
  EXPECT_EQ(played.difference->input, 3u);
  EXPECT_TRUE(is_sent(*played.difference->recorded));
  EXPECT_TRUE(played.difference->played.empty());
}

TEST(Player, FindsACallThatReturnsSomethingElse) {
  const auto file = changed(a_recording(), [](std::size_t, Item& item) {
    if (auto* const connect = std::get_if<Connect>(&item.record); connect != nullptr && connect->error != 0) {
      connect->error = ENOMEM;
    }
    return true;
  });
  const Played played = play(file);
  ASSERT_TRUE(played.difference);
  EXPECT_EQ(std::get<Connect>(played.difference->recorded->record).error, ENOMEM);
  EXPECT_EQ(std::get<Connect>(parse(played.difference->played)->record).error, EINVAL);
}

TEST(Player, FindsAnotherRandomKey) {
  const auto file = changed(a_recording(), [](std::size_t, Item& item) {
    if (auto* const start = std::get_if<Start>(&item.record)) ++start->config.random_key[0];
    return true;
  });
  EXPECT_TRUE(play(file).difference);
}

TEST(Player, ACopyHasWhatThisEngineMakesAlsoAfterADifference) {
  const auto file = a_recording();
  const auto other = changed(file, [](std::size_t, Item& item) {
    if (is_sent(item)) std::get<Sent>(item.record).mad[100] ^= 1;
    return true;
  });
  test::Recorded again;
  const Played played = play(other, [&](Bytes record) { again.append(record); });
  EXPECT_TRUE(played.difference);
  EXPECT_EQ(again.file(), file);
}

TEST(Player, PlaysWhatIsThereOfAFileThatIsCutOff) {
  const auto file = a_recording();
  const auto records = test::records_of(file);
  const std::size_t size = static_cast<std::size_t>(records[8].data() - file.data());
  const Played played = play(Bytes(file).first(size));
  EXPECT_FALSE(played.difference);
  EXPECT_GT(played.inputs, 1u);
  ASSERT_TRUE(played.error);
  EXPECT_EQ(played.error->message, "it is cut off: there is no end, at byte " + std::to_string(size));
}

TEST(Player, ARecordingBeginsOnceWithAStart) {
  const auto file = a_recording();
  const auto without = changed(file, [](std::size_t number, Item&) { return number != 0; });
  ASSERT_TRUE(play(without).error);
  EXPECT_EQ(play(without).error->message, "it does not begin with a start");
  const auto twice = changed(file, [](std::size_t number, Item& item) {
    if (number == 3) item.record = Start{.now = 2 * kMs};
    return true;
  });
  ASSERT_TRUE(play(twice).error);
  EXPECT_EQ(play(twice).error->message, "it starts twice");
}

TEST(RecordedEngine, EndsWhenTheSinkTakesNoMore) {
  int records = 0;
  RecordedEngine engine(cm::Config{});
  engine.record(0, {}, [&](Bytes) { return ++records < 3; });
  for (int i = 0; i < 5; ++i) engine.on_deadline(i);
  EXPECT_EQ(records, 3);
}

TEST(RecordedEngine, ARecordingBeginsWithAnEmptyEngine) {
  RecordedEngine engine(cm::Config{});
  ASSERT_TRUE(engine.connect(0, {.path = {.local = kOwn, .remote = kPeer}}));
  engine.record(0, {}, [](Bytes) { return true; });
  EXPECT_EQ(engine.counters().connects, 0u);
  EXPECT_EQ(engine.usage(), cm::Engine::Usage{});
}

}  // namespace
}  // namespace ucm::recording
