#include "ipc/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"

namespace ucm::ipc {
namespace {

constexpr std::uint32_t kCapacity = 1024;

struct RingMemory {
  alignas(64) std::array<std::uint8_t, ring_memory_size(kCapacity)> bytes{};
  RingHeader& header() { return *reinterpret_cast<RingHeader*>(bytes.data()); }
  std::uint8_t* data() { return bytes.data() + sizeof(RingHeader); }
};

std::vector<std::uint8_t> pattern(std::size_t size, std::uint8_t seed) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(seed + i);
  return bytes;
}

TEST(Ring, BehavesLikeAQueueOfRecordsOverManyWraps) {
  RingMemory memory;
  RingProducer producer(memory.bytes.data(), kCapacity);
  RingConsumer consumer(memory.bytes.data(), kCapacity);
  std::deque<std::vector<std::uint8_t>> model;
  std::size_t used = 0;
  Random random(7);
  std::array<std::uint8_t, 300> out{};
  for (int step = 0; step < 100'000; ++step) {
    if (random.chance(1, 2)) {
      const auto record = pattern(random.below(300), static_cast<std::uint8_t>(step));
      const std::size_t split = random.below(record.size() + 1);
      const auto pushed = producer.try_push(Bytes(record).first(split), Bytes(record).subspan(split));
      const bool fits = used + record_footprint(record.size()) <= kCapacity;
      ASSERT_EQ(pushed, fits ? RingProducer::Push::kPushed : RingProducer::Push::kFull);
      if (!fits) continue;
      used += record_footprint(record.size());
      model.push_back(record);
    } else {
      std::size_t size = 0;
      const auto popped = consumer.try_pop(out, size);
      ASSERT_EQ(popped, model.empty() ? RingConsumer::Pop::kEmpty : RingConsumer::Pop::kPopped);
      if (model.empty()) continue;
      ASSERT_EQ(std::vector(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size)), model.front());
      used -= record_footprint(size);
      model.pop_front();
    }
  }
}

TEST(Ring, PushSaysOncePerSleepThatTheConsumerSleeps) {
  RingMemory memory;
  RingProducer producer(memory.bytes.data(), kCapacity);
  RingConsumer consumer(memory.bytes.data(), kCapacity);
  const auto record = pattern(8, 1);
  ASSERT_TRUE(consumer.sleep_prepare());
  EXPECT_EQ(producer.try_push(record), RingProducer::Push::kPushedWake);
  EXPECT_EQ(producer.try_push(record), RingProducer::Push::kPushed);
  EXPECT_FALSE(consumer.sleep_prepare()) << "records wait";
}

TEST(Ring, ConsumerThatWokeByItselfIsNotWokenAgain) {
  RingMemory memory;
  RingProducer producer(memory.bytes.data(), kCapacity);
  RingConsumer consumer(memory.bytes.data(), kCapacity);
  ASSERT_TRUE(consumer.sleep_prepare());
  consumer.sleep_done();
  EXPECT_EQ(producer.try_push(pattern(8, 1)), RingProducer::Push::kPushed);
}

TEST(Ring, PopSaysOnceThatTheProducerMetAFullRing) {
  RingMemory memory;
  RingProducer producer(memory.bytes.data(), kCapacity);
  RingConsumer consumer(memory.bytes.data(), kCapacity);
  const auto record = pattern(248, 1);
  while (producer.try_push(record) == RingProducer::Push::kPushed) continue;
  std::array<std::uint8_t, 256> out{};
  std::size_t size = 0;
  ASSERT_EQ(consumer.try_pop(out, size), RingConsumer::Pop::kPopped);
  EXPECT_TRUE(consumer.take_producer_waiting());
  EXPECT_FALSE(consumer.take_producer_waiting());
  EXPECT_EQ(producer.try_push(record), RingProducer::Push::kPushed);
}

TEST(Ring, RecordOfTheWholeCapacityFits) {
  RingMemory memory;
  RingProducer producer(memory.bytes.data(), kCapacity);
  EXPECT_EQ(producer.try_push(pattern(kCapacity - kRecordHeaderSize, 1)), RingProducer::Push::kPushed);
  EXPECT_EQ(producer.try_push({}), RingProducer::Push::kFull);
}

TEST(Ring, ConsumerRefusesImpossibleTails) {
  for (const std::uint64_t tail : {std::uint64_t{kCapacity + 8}, std::uint64_t{4}, UINT64_MAX, UINT64_MAX - 7}) {
    RingMemory memory;
    RingConsumer consumer(memory.bytes.data(), kCapacity);
    memory.header().tail.store(tail);
    std::array<std::uint8_t, 64> out{};
    std::size_t size = 0;
    EXPECT_EQ(consumer.try_pop(out, size), RingConsumer::Pop::kBroken) << tail;
    memory.header().tail.store(0);
    EXPECT_EQ(consumer.try_pop(out, size), RingConsumer::Pop::kBroken) << "broken is for good";
  }
}

TEST(Ring, ConsumerRefusesImpossibleLengths) {
  for (const std::uint64_t length : {std::uint64_t{65}, std::uint64_t{57}, UINT64_MAX, UINT64_MAX - 7}) {
    RingMemory memory;
    RingConsumer consumer(memory.bytes.data(), kCapacity);
    std::memcpy(memory.data(), &length, sizeof length);
    memory.header().tail.store(64);
    std::array<std::uint8_t, 64> out{};
    std::size_t size = 0;
    EXPECT_EQ(consumer.try_pop(out, size), RingConsumer::Pop::kBroken) << length;
  }
}

TEST(Ring, ProducerRefusesImpossibleHeads) {
  for (const std::uint64_t head : {std::uint64_t{1}, std::uint64_t{2048}, UINT64_MAX}) {
    RingMemory memory;
    RingProducer producer(memory.bytes.data(), kCapacity);
    ASSERT_EQ(producer.try_push(pattern(1000, 1)), RingProducer::Push::kPushed);
    memory.header().head.store(head);
    EXPECT_EQ(producer.try_push(pattern(100, 1)), RingProducer::Push::kBroken) << head;
    EXPECT_TRUE(producer.broken());
  }
}

TEST(Ring, ProducerRefusesAHeadThatGoesBack) {
  RingMemory memory;
  RingProducer producer(memory.bytes.data(), kCapacity);
  RingConsumer consumer(memory.bytes.data(), kCapacity);
  std::array<std::uint8_t, 1024> out{};
  std::size_t size = 0;
  ASSERT_EQ(producer.try_push(pattern(600, 1)), RingProducer::Push::kPushed);
  ASSERT_EQ(consumer.try_pop(out, size), RingConsumer::Pop::kPopped);
  ASSERT_EQ(producer.try_push(pattern(600, 1)), RingProducer::Push::kPushed);
  memory.header().head.store(0);
  EXPECT_EQ(producer.try_push(pattern(600, 1)), RingProducer::Push::kBroken);
}

// Whatever stands in the shared memory, each side answers every call and stays inside the memory (checked by ASan).
TEST(Ring, RandomSharedMemoryNeverDoesHarm) {
  Random random(11);
  std::array<std::uint8_t, 128> out{};
  for (int round = 0; round < 20'000; ++round) {
    auto memory = std::make_unique<RingMemory>();
    RingProducer producer(memory->bytes.data(), kCapacity);
    RingConsumer consumer(memory->bytes.data(), kCapacity);
    for (int step = 0; step < 8; ++step) {
      const std::uint64_t value = random.chance(1, 2) ? random.below(2 * kCapacity) & ~std::uint64_t{7} : random.next();
      const std::uint64_t target = random.below(4);
      if (target == 0) memory->header().tail.store(value);
      if (target == 1) memory->header().head.store(value);
      if (target == 2)
        std::memcpy(memory->data() + (random.below(kCapacity - 8) & ~std::uint64_t{7}), &value, sizeof value);
      std::size_t size = 0;
      const auto popped = consumer.try_pop(out, size);
      if (popped == RingConsumer::Pop::kPopped) {
        ASSERT_LE(size, out.size());
      }
      static_cast<void>(producer.try_push(Bytes(out).first(random.below(out.size()))));
      static_cast<void>(consumer.sleep_prepare());
      static_cast<void>(consumer.take_producer_waiting());
    }
  }
}

TEST(Ring, TwoThreadsExchangeEveryRecordInOrder) {
  auto memory = std::make_unique<RingMemory>();
  constexpr std::uint64_t kRecords = 50'000;
  std::thread producer_thread([&] {
    RingProducer producer(memory->bytes.data(), kCapacity);
    for (std::uint64_t i = 0; i < kRecords;) {
      const auto body = pattern(i % 100, static_cast<std::uint8_t>(i));
      const auto pushed = producer.try_push(Bytes(reinterpret_cast<const std::uint8_t*>(&i), sizeof i), body);
      if (pushed == RingProducer::Push::kFull) {
        std::this_thread::yield();
      } else {
        ++i;
      }
    }
  });
  RingConsumer consumer(memory->bytes.data(), kCapacity);
  std::array<std::uint8_t, 128> out{};
  for (std::uint64_t expected = 0; expected < kRecords;) {
    std::size_t size = 0;
    const auto popped = consumer.try_pop(out, size);
    if (popped == RingConsumer::Pop::kEmpty) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(popped, RingConsumer::Pop::kPopped);
    std::uint64_t index = 0;
    std::memcpy(&index, out.data(), sizeof index);
    ASSERT_EQ(index, expected);
    ASSERT_EQ(size, sizeof index + expected % 100);
    ++expected;
  }
  producer_thread.join();
}

}  // namespace
}  // namespace ucm::ipc
