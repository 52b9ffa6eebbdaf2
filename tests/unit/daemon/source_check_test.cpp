#include "daemon/source_check.h"

#include <gtest/gtest.h>

namespace ucm::daemon {
namespace {

using Verdict = SourceCheck::Verdict;

struct SourceCheckTest : testing::Test {
  static constexpr SourceCheck::Owner kAlice = 1, kMallory = 2;
  static constexpr std::uint16_t kPortOfAlice = 0xC001, kPortOfMallory = 0xC002;
  QpnAllocator qpns{0};
  SourceCheck sources;
  std::uint32_t qpn_of_alice = qpns.allocate(kAlice, 0).value();
  SourceCheckTest() {
    sources.register_port(kPortOfAlice, kAlice);
    sources.register_port(kPortOfMallory, kMallory);
  }
};

TEST_F(SourceCheckTest, ThePeerItselfIsHeard) {
  EXPECT_EQ(sources.check(kPortOfAlice, qpn_of_alice, qpns), Verdict::kAccept);
}
TEST_F(SourceCheckTest, AnotherProgramCannotSpeakForThePeer) {
  EXPECT_EQ(sources.check(kPortOfMallory, qpn_of_alice, qpns), Verdict::kForeignPeer);
}
TEST_F(SourceCheckTest, ASocketOfTheProgramsOwnIsNotHeard) {
  EXPECT_EQ(sources.check(0xC003, qpn_of_alice, qpns), Verdict::kUnknownPort);
  EXPECT_EQ(sources.check(0xC003, 0, qpns), Verdict::kUnknownPort);
}
TEST_F(SourceCheckTest, AQpWithoutAPeerHearsEveryRegisteredPort) {
  EXPECT_EQ(sources.check(kPortOfMallory, 0, qpns), Verdict::kAccept);
}
TEST_F(SourceCheckTest, APortIsForgottenWithItsOwner) {
  sources.release_all(kAlice);
  EXPECT_EQ(sources.check(kPortOfAlice, 0, qpns), Verdict::kUnknownPort);
}
TEST_F(SourceCheckTest, APeerNumberOfNobodyMatchesNoPort) {
  qpns.release_all(kAlice);
  EXPECT_EQ(sources.check(kPortOfAlice, qpn_of_alice, qpns), Verdict::kForeignPeer);
}

}  // namespace
}  // namespace ucm::daemon
