// Two streams whose writes go straight, or late, into one another's memory.
#include "rsocket/protocol/stream.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <deque>
#include <numeric>
#include <random>

namespace ucm::rsocket {
namespace {

constexpr StreamSizes kSmall{
    .send_buffer = 8192, .receive_buffer = 8192, .send_queue = 16, .receive_queue = 16, .iomap = 2};

class Side {
 public:
  Side(const StreamSizes& sizes, std::uint32_t key)
      : key_(key),
        remote_(Stream::remote_block_size(sizes)),
        local_(Stream::local_block_size(sizes)),
        stream_(sizes, remote_, local_, key) {}

  Stream& operator*() { return stream_; }
  Stream* operator->() { return &stream_; }

  MutableBytes memory() { return remote_; }
  void add_region(MutableBytes region, std::uint32_t key) { regions_.push_back({region, key}); }

  // Moves the writes that the engine has into the queue, with the bytes they have now.
  void post() {
    while (const auto write = stream_.poll_write()) {
      const auto from = local_.begin() + write->offset;
      posted_.push_back({*write, {from, from + write->length}});
    }
  }
  bool has_posted() const { return !posted_.empty(); }
  std::size_t posted() const { return posted_.size(); }

  // The oldest write happens at the peer.
  void deliver_one(Side& peer) {
    post();
    const Posted posted = posted_.front();
    posted_.pop_front();
    peer.take_write(posted.write, posted.bytes);
    stream_.on_written(posted.write.kind, posted.write.held);
  }

 private:
  struct Posted {
    Stream::Write write;
    std::vector<std::uint8_t> bytes;
  };
  struct Region {
    MutableBytes memory;
    std::uint32_t key;
  };

  void take_write(const Stream::Write& write, Bytes bytes) {
    if (!bytes.empty()) std::copy(bytes.begin(), bytes.end(), memory_at(write, bytes.size()));
    if (write.immediate) stream_.on_message(*write.immediate, write.length);
  }
  // What a device would check.
  std::uint8_t* memory_at(const Stream::Write& write, std::size_t size) {
    std::vector<Region> regions = regions_;
    regions.push_back({remote_, key_});
    for (const Region& region : regions) {
      const auto begin = reinterpret_cast<std::uintptr_t>(region.memory.data());
      if (write.remote_key != region.key || write.remote_address < begin) continue;
      const std::size_t offset = write.remote_address - begin;
      if (offset + size <= region.memory.size()) return &region.memory[offset];
    }
    ADD_FAILURE() << "a write outside of what was told";
    return remote_.data();
  }

  std::uint32_t key_;
  std::vector<std::uint8_t> remote_;
  std::vector<std::uint8_t> local_;
  Stream stream_;
  std::deque<Posted> posted_;
  std::vector<Region> regions_;
};

class StreamTest : public testing::Test {
 protected:
  StreamTest() {
    const ConnectionData a = a_->connection_data();
    const ConnectionData b = b_->connection_data();
    a_->connected(*ConnectionData::parse(b.emit()));
    b_->connected(*ConnectionData::parse(a.emit()));
  }

  // Until nothing is under way.
  void settle() {
    for (int turns = 0; turns < 10'000; ++turns) {
      a_.post();
      b_.post();
      if (!a_.has_posted() && !b_.has_posted()) return;
      if (a_.has_posted()) a_.deliver_one(b_);
      if (b_.has_posted()) b_.deliver_one(a_);
    }
    FAIL() << "two idle streams keep talking";
  }

  static std::vector<std::uint8_t> pattern(std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    return bytes;
  }

  static std::vector<std::uint8_t> read_all(Side& side) {
    std::vector<std::uint8_t> bytes(1 << 16);
    bytes.resize(side->receive(bytes, ReceiveMode::kTake));
    return bytes;
  }

  Side a_{kSmall, 1};
  Side b_{kSmall, 2};
};

TEST_F(StreamTest, BothHalvesOfTheReceiveBufferAreOfferedAtOnce) {
  settle();
  std::size_t sent = 0;
  const auto data = pattern(100'000);
  for (std::size_t now = 1; now != 0; sent += now) {
    now = a_->send(Bytes(data).subspan(sent));
    settle();
  }
  EXPECT_EQ(sent, kSmall.receive_buffer);
  EXPECT_EQ(read_all(b_), pattern(sent));
}

TEST_F(StreamTest, ReadingMakesRoomAgainHalfByHalf) {
  const auto data = pattern(8192);
  ASSERT_EQ(a_->send(data), 4096u);  // what the connection data told of
  settle();
  ASSERT_EQ(a_->send(data), 4096u);
  settle();
  EXPECT_FALSE(a_->may_send());
  std::vector<std::uint8_t> some(4095);
  b_->receive(some, ReceiveMode::kTake);
  settle();
  EXPECT_FALSE(a_->may_send());
  b_->receive(std::span(some).first(1), ReceiveMode::kTake);
  settle();
  EXPECT_TRUE(a_->may_send());
  EXPECT_EQ(a_->send(data), 4096u);
}

TEST_F(StreamTest, CreditsLimitSmallMessagesAndComeBack) {
  settle();
  std::size_t sent = 0;
  while (a_->send(pattern(1)) == 1) {
    ++sent;
    settle();
    ASSERT_LE(sent, kSmall.receive_queue);
  }
  EXPECT_EQ(sent, kSmall.receive_queue);
  EXPECT_EQ(read_all(b_).size(), sent);
  settle();
  EXPECT_TRUE(a_->may_send());
}

TEST_F(StreamTest, TheSendQueueKeepsRoomForControlMessages) {
  settle();
  std::size_t sent = 0;
  while (a_->send(pattern(1)) == 1) ++sent;
  EXPECT_EQ(sent, kSmall.send_queue - kControlSlots);
  a_->shut_down_sending();
  a_.post();
  EXPECT_EQ(a_.posted(), sent + 1);
}

TEST_F(StreamTest, PeekingTakesNothing) {
  a_->send(pattern(100));
  settle();
  std::vector<std::uint8_t> bytes(60);
  EXPECT_EQ(b_->receive(bytes, ReceiveMode::kPeek), 60u);
  EXPECT_EQ(read_all(b_), pattern(100));
  EXPECT_FALSE(b_->readable());
}

TEST_F(StreamTest, RandomTransfersArriveWholeAndInOrder) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto upto = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(1, most)(random); };
    std::array<std::size_t, 2> sent{};
    std::array<std::size_t, 2> received{};
    constexpr std::size_t kTotal = 100'000;
    Side a(kSmall, 1);
    Side b(StreamSizes{.send_buffer = 5000, .receive_buffer = 6002, .send_queue = 17, .receive_queue = 33}.rounded(),
           2);
    a->connected(b->connection_data());
    b->connected(a->connection_data());
    const std::array<Side*, 2> sides = {&a, &b};
    const auto data = pattern(kTotal + 70'000);
    for (int turns = 0; received[0] < kTotal || received[1] < kTotal; ++turns) {
      ASSERT_LT(turns, 1'000'000) << "no progress, seed " << seed;
      const std::size_t who = random() % 2;
      Side& side = *sides[who];
      switch (random() % 3) {
        case 0:
          if (sent[who] < kTotal)
            sent[who] += side->send(Bytes(data).subspan(sent[who], upto(random() % 4 ? 50 : 9000)));
          side.post();
          break;
        case 1: {
          std::vector<std::uint8_t> bytes(upto(5000));
          bytes.resize(side->receive(bytes, ReceiveMode::kTake));
          const auto expected = Bytes(data).subspan(received[who], bytes.size());
          ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin())) << "seed " << seed;
          received[who] += bytes.size();
          side.post();
          break;
        }
        default:
          if (side.has_posted()) side.deliver_one(*sides[1 - who]);
      }
    }
    EXPECT_EQ(a->error(), 0);
    EXPECT_EQ(b->error(), 0);
  }
}

TEST_F(StreamTest, OneDirectionEndsAndTheOtherGoesOn) {
  a_->send(pattern(10));
  a_->shut_down_sending();
  settle();
  EXPECT_EQ(read_all(b_), pattern(10));
  EXPECT_TRUE(b_->receive_returns());
  EXPECT_TRUE(b_->connected());
  EXPECT_EQ(b_->send(pattern(20)), 20u);
  settle();
  EXPECT_EQ(read_all(a_), pattern(20));
  b_->shut_down_sending();
  settle();
  EXPECT_FALSE(a_->connected());
  EXPECT_FALSE(b_->connected());
  EXPECT_EQ(a_->error(), 0);
  EXPECT_EQ(b_->error(), 0);
}

TEST_F(StreamTest, DataBeforeADisconnectCanStillBeRead) {
  a_->send(pattern(3000));
  a_->shut_down_receiving();
  a_->shut_down_sending();
  settle();
  EXPECT_FALSE(a_->connected());
  EXPECT_FALSE(b_->connected());
  EXPECT_EQ(b_->send(pattern(1)), 0u);
  EXPECT_EQ(read_all(b_), pattern(3000));
}

TEST_F(StreamTest, AKeepAliveIsAnEmptyWriteThatThePeerDoesNotHearOf) {
  settle();
  a_->send_keepalive();
  const auto write = a_->poll_write();
  ASSERT_TRUE(write);
  EXPECT_EQ(write->length, 0u);
  EXPECT_FALSE(write->immediate);
  EXPECT_FALSE(a_->idle());
  a_->on_written(write->kind, write->held);
  EXPECT_TRUE(a_->idle());
}

TEST_F(StreamTest, MappedMemoryIsWrittenWithoutTheStream) {
  std::vector<std::uint8_t> memory(5000);
  b_.add_region(memory, 9);
  EXPECT_EQ(a_->write_mapped(100, pattern(10)), 0u);  // not mapped yet
  ASSERT_EQ(b_->map(100, {reinterpret_cast<std::uintptr_t>(memory.data()), 9, 5000}), 0);
  settle();
  const auto data = pattern(6000);
  std::size_t written = 0;
  for (std::size_t now = 1; now != 0; written += now) {
    now = a_->write_mapped(100 + written, Bytes(data).subspan(written));
    settle();
  }
  EXPECT_EQ(written, 5000u);
  EXPECT_EQ(memory, pattern(5000));
  EXPECT_FALSE(b_->readable());
}

TEST_F(StreamTest, MappingAndUnmappingForEverCostsNoCredits) {
  std::vector<std::uint8_t> memory(16);
  b_.add_region(memory, 9);
  for (int i = 0; i < 200; ++i) {
    const auto index = b_->map(0, {reinterpret_cast<std::uintptr_t>(memory.data()), 9, 16});
    ASSERT_TRUE(index) << i;
    settle();
    ASSERT_EQ(a_->write_mapped(0, pattern(16)), 16u);
    settle();
    b_->unmap(*index);
    ASSERT_EQ(b_->send(pattern(1)), 1u) << i;
    settle();
    ASSERT_EQ(read_all(a_).size(), 1u) << i;
    settle();
  }
}

TEST_F(StreamTest, ThePeersMapHasAnEnd) {
  EXPECT_TRUE(a_->map(0, {1, 1, 1}));
  EXPECT_TRUE(a_->map(8, {1, 1, 1}));
  EXPECT_FALSE(a_->map(16, {1, 1, 1}));
  a_->unmap(0);
  EXPECT_EQ(a_->map(16, {1, 1, 1}), 0);
}

TEST_F(StreamTest, AMapThatWaitsGoesBeforeData) {
  settle();
  while (a_->send(pattern(1)) == 1) {
  }
  ASSERT_TRUE(a_->map(0, {1, 1, 1}));
  EXPECT_FALSE(a_->may_send());
  settle();
  EXPECT_TRUE(b_->mapped(0));
}

TEST_F(StreamTest, AnEntryIsLookedAtWhenItsMessageHasCome) {
  settle();
  const auto half = pattern(4096);
  ASSERT_EQ(a_->send(half), 4096u);
  ASSERT_EQ(a_->send(half), 4096u);
  settle();
  // A message without an entry, while the device is writing one of which the length is there already.
  std::fill_n(a_.memory().begin() + 12, 4, 1);
  a_->on_message(Message{MessageType::kCredits, 100}.emit(), 0);
  EXPECT_EQ(a_->send(half), 0u);
  read_all(b_);
  settle();
  EXPECT_EQ(a_->send(half), 4096u);
}

// --- Peers that do what they must not ---

TEST_F(StreamTest, MoreDataThanWasAllowedBreaksTheConnection) {
  b_->on_message(Message{MessageType::kData, 4097}.emit(), 0);
  EXPECT_EQ(b_->error(), EPROTO);
  EXPECT_FALSE(b_->readable());
}

TEST_F(StreamTest, MoreMessagesThanWereAllowedBreakTheConnection) {
  for (int i = 0; i < kSmall.receive_queue; ++i) b_->on_message(Message{MessageType::kData, 1}.emit(), 0);
  EXPECT_EQ(b_->error(), 0);
  b_->on_message(Message{MessageType::kData, 1}.emit(), 0);
  EXPECT_EQ(b_->error(), EPROTO);
}

TEST_F(StreamTest, ReservedMessagesAndEntriesThatAreNotThereBreakTheConnection) {
  a_->on_message(1u << 29, 0);
  EXPECT_EQ(a_->error(), EPROTO);
  b_->on_message(Message{MessageType::kIoMap, 2}.emit(), 0);
  EXPECT_EQ(b_->error(), EPROTO);
}

TEST_F(StreamTest, UnknownControlMessagesAndEmptyDataAreBorne) {
  b_->on_message(Message{MessageType::kControl, 99}.emit(), 0);
  for (int i = 0; i < 100; ++i) b_->on_message(Message{MessageType::kData, 0}.emit(), 0);
  EXPECT_TRUE(b_->connected());
  EXPECT_FALSE(b_->readable());
}

}  // namespace
}  // namespace ucm::rsocket
