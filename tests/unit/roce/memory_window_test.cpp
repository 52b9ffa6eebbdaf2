// Memory windows: rights to a part of a region that are given and taken by work requests. IBTA 10.6.7.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "pair.h"

namespace ucm::roce::test {
namespace {

constexpr std::size_t kWindowAt = 4096;
constexpr std::size_t kWindowSize = 1024;

// b's window, which a uses. b's region grants nobody anything by itself.
class MemoryWindowTest : public testing::Test {
 protected:
  void SetUp() override {
    pair.connect();
    region = register_region(kAccessLocalWrite | kAccessWindowBind);
  }

  MrKeys register_region(std::uint32_t access) {
    return *pair.b.engine().reg_mr({.pd = pair.b.pd,
                                    .address = pair.b.memory(),
                                    .length = pair.b.memory_size(),
                                    .iova = pair.b.address(),
                                    .access = access});
  }
  WindowBinding binding(std::uint32_t rkey, std::uint32_t access = kAccessRemoteWrite | kAccessRemoteRead) {
    return {.rkey = rkey,
            .lkey = region.lkey,
            .address = pair.b.address(kWindowAt),
            .length = kWindowSize,
            .access = access};
  }
  CompletionStatus bind(const WindowBinding& what) {
    EXPECT_TRUE(pair.send(pair.b, {.wr_id = 9, .opcode = SendOpcode::kBindWindow, .signaled = true, .binding = what}));
    return status(pair.b, CompletionOpcode::kBindWindow);
  }
  CompletionStatus invalidate(std::uint32_t rkey) {
    EXPECT_TRUE(pair.send(pair.b, {.opcode = SendOpcode::kLocalInvalidate, .signaled = true, .immediate = rkey}));
    return status(pair.b, CompletionOpcode::kLocalInvalidate);
  }
  CompletionStatus use(SendOpcode opcode, std::uint32_t rkey, std::size_t at, std::uint32_t length) {
    SendRequest request = pair.request(opcode, pair.b, at);
    request.rkey = rkey;
    EXPECT_TRUE(pair.send(pair.a, request, {pair.a.sge(0, length)}));
    const std::vector<Completion> done = pair.wait(pair.a, pair.a.send_cq, 1);
    return done.empty() ? CompletionStatus::kGeneral : done[0].status;
  }
  CompletionStatus status(End& end, CompletionOpcode opcode) {
    const std::vector<Completion> done = pair.wait(end, end.send_cq, 1);
    if (done.empty()) return CompletionStatus::kGeneral;
    if (done[0].status == CompletionStatus::kSuccess) {
      EXPECT_EQ(done[0].opcode, opcode);
    }
    return done[0].status;
  }
  std::uint32_t allocate(WindowType type) { return *pair.b.engine().alloc_mw(pair.b.pd, type); }

  Pair pair;
  MrKeys region;
};

constexpr auto kGood = CompletionStatus::kSuccess;
constexpr auto kRefused = CompletionStatus::kRemoteAccess;

TEST_F(MemoryWindowTest, GivesItsRightsToItsRangeAlone) {
  const std::uint32_t rkey = allocate(WindowType::kType2);
  ASSERT_EQ(bind(binding(rkey)), kGood);
  fill(pair.a, 0, kWindowSize, 1);
  ASSERT_EQ(use(SendOpcode::kWrite, rkey, kWindowAt, kWindowSize), kGood);
  EXPECT_EQ(std::memcmp(pair.a.memory(), pair.b.memory() + kWindowAt, kWindowSize), 0);
  ASSERT_EQ(use(SendOpcode::kRead, rkey, kWindowAt + 8, kWindowSize - 8), kGood);
  EXPECT_EQ(use(SendOpcode::kWrite, rkey, kWindowAt + 1, kWindowSize), kRefused);
}

TEST_F(MemoryWindowTest, IsOfNoUseBeforeItIsBound) {
  EXPECT_EQ(use(SendOpcode::kRead, allocate(WindowType::kType2), kWindowAt, 8), kRefused);
}

TEST_F(MemoryWindowTest, RefusesARightThatItWasNotGiven) {
  const std::uint32_t rkey = allocate(WindowType::kType1);
  ASSERT_EQ(bind(binding(rkey, kAccessRemoteRead)), kGood);
  EXPECT_EQ(use(SendOpcode::kWrite, rkey, kWindowAt, 8), kRefused);
}

TEST_F(MemoryWindowTest, OfType1TakesANewKeyAndTheOldOneEnds) {
  const std::uint32_t first = allocate(WindowType::kType1);
  ASSERT_EQ(bind(binding(first)), kGood);
  const std::uint32_t second = (first & ~0xFFu) | ((first + 1) & 0xFF);
  ASSERT_EQ(bind(binding(second)), kGood);
  EXPECT_EQ(use(SendOpcode::kWrite, second, kWindowAt, 8), kGood);
  EXPECT_EQ(use(SendOpcode::kWrite, first, kWindowAt, 8), kRefused);
}

TEST_F(MemoryWindowTest, OfType1EndsByABindingOfLengthZero) {
  const std::uint32_t rkey = allocate(WindowType::kType1);
  ASSERT_EQ(bind(binding(rkey)), kGood);
  ASSERT_EQ(bind({.rkey = rkey}), kGood);
  EXPECT_EQ(use(SendOpcode::kRead, rkey, kWindowAt, 8), kRefused);
}

TEST_F(MemoryWindowTest, OfType2IsBoundAgainOnlyAfterItsInvalidation) {
  const std::uint32_t rkey = allocate(WindowType::kType2);
  ASSERT_EQ(bind(binding(rkey)), kGood);
  ASSERT_EQ(invalidate(rkey), kGood);
  ASSERT_EQ(bind(binding(rkey + 1 - (rkey % 256 == 255 ? 256 : 0))), kGood);
  EXPECT_EQ(bind(binding(rkey)), CompletionStatus::kWindowBind);
  EXPECT_EQ(pair.b.state(), QpState::kErr);
}

TEST_F(MemoryWindowTest, OfType2EndsByAPeersSend) {
  const std::uint32_t rkey = allocate(WindowType::kType2);
  ASSERT_EQ(bind(binding(rkey)), kGood);
  ASSERT_TRUE(pair.recv(pair.b, 1));
  ASSERT_TRUE(pair.send(pair.a, {.opcode = SendOpcode::kSendInvalidate, .signaled = true, .immediate = rkey}));
  ASSERT_EQ(status(pair.a, CompletionOpcode::kSend), kGood);
  EXPECT_EQ(use(SendOpcode::kRead, rkey, kWindowAt, 8), kRefused);
}

TEST_F(MemoryWindowTest, OfType2ServesOnlyTheQueuePairThatBoundIt) {
  const std::uint32_t rkey = allocate(WindowType::kType2);
  QpParams params{.qpn = 0x77,
                  .pd = pair.b.pd,
                  .send_cq = pair.b.send_cq,
                  .recv_cq = pair.b.recv_cq,
                  .capacity = {.send_wr_max = 4, .recv_wr_max = 4, .send_sge_max = 1, .recv_sge_max = 1}};
  ASSERT_TRUE(pair.b.engine().create_qp(params));
  End other;
  other.host = pair.b.host;
  other.send_cq = pair.b.send_cq;
  other.qpn = params.qpn;
  ASSERT_TRUE(pair.to_init(other));
  ASSERT_TRUE(pair.to_rtr(other, pair.a));
  ASSERT_TRUE(pair.to_rts(other));
  ASSERT_TRUE(pair.send(other, {.opcode = SendOpcode::kBindWindow, .signaled = true, .binding = binding(rkey)}));
  ASSERT_EQ(status(other, CompletionOpcode::kBindWindow), kGood);
  EXPECT_EQ(use(SendOpcode::kRead, rkey, kWindowAt, 8), kRefused);
}

TEST_F(MemoryWindowTest, IsNotBoundToWhatTheRegionDoesNotAllow) {
  struct Case {
    const char* why;
    std::uint32_t region_access;
    std::uint64_t length;
  };
  for (const Case& wrong : {Case{"the region may not be bound to", kAccessLocalWrite, 8},
                            Case{"others would write what the owner may not", kAccessWindowBind, 8},
                            Case{"beyond the region", kAccessLocalWrite | kAccessWindowBind, 1u << 30}}) {
    region = register_region(wrong.region_access);
    WindowBinding what = binding(allocate(WindowType::kType2));
    what.length = wrong.length;
    EXPECT_EQ(bind(what), CompletionStatus::kWindowBind) << wrong.why;
    EXPECT_EQ(pair.b.state(), QpState::kErr);
    // For the next case.
    ASSERT_TRUE(pair.b.engine().modify_qp(pair.network.now(), pair.b.qpn, {.state = QpState::kReset}, kQpState));
    ASSERT_TRUE(pair.to_init(pair.b));
    ASSERT_TRUE(pair.to_rtr(pair.b, pair.a));
    ASSERT_TRUE(pair.to_rts(pair.b));
  }
}

TEST_F(MemoryWindowTest, KeepsItsRegionAndItsDomain) {
  const std::uint32_t rkey = allocate(WindowType::kType2);
  ASSERT_EQ(bind(binding(rkey)), kGood);
  EXPECT_EQ(pair.b.engine().dereg_mr(region.lkey).error().code, EBUSY);
  ASSERT_TRUE(pair.b.engine().dealloc_mw(rkey));
  EXPECT_FALSE(pair.b.engine().dealloc_mw(rkey));
  EXPECT_TRUE(pair.b.engine().dereg_mr(region.lkey));
}

}  // namespace
}  // namespace ucm::roce::test
