#include "wire/icrc.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "support/random_bytes.h"
#include "wire/headers.h"

namespace ucm::wire {
namespace {

using test::random_bytes;

// One bit at a time, straight from the definition.
std::uint32_t crc32_by_bits(std::uint32_t state, Bytes bytes) {
  for (const std::uint8_t byte : bytes) {
    state ^= byte;
    for (int i = 0; i < 8; ++i) state = state >> 1 ^ (state & 1 ? 0xEDB88320 : 0);
  }
  return state;
}

TEST(Crc32, MatchesTheWellKnownCheckValue) {
  constexpr std::string_view kText = "123456789";
  const std::vector<std::uint8_t> bytes(kText.begin(), kText.end());
  EXPECT_EQ(~crc32_portable(~0u, bytes), 0xCBF43926u);
  EXPECT_EQ(~crc32(~0u, bytes), 0xCBF43926u);
}

TEST(Crc32, EveryImplementationAgreesAtEveryLengthAndAlignment) {
  Random random(1);
  for (std::size_t size = 0; size <= 600; ++size) {
    const std::size_t misalignment = random.below(16);
    const auto buffer = random_bytes(random, size + misalignment);
    const Bytes bytes = Bytes(buffer).subspan(misalignment);
    const std::uint32_t state = random.next_u32();
    const std::uint32_t expected = crc32_by_bits(state, bytes);
    ASSERT_EQ(crc32_portable(state, bytes), expected) << size;
    ASSERT_EQ(crc32(state, bytes), expected) << size;
  }
}

TEST(Crc32, ContinuesFromAnySplit) {
  Random random(2);
  const auto bytes = random_bytes(random, 400);
  const std::uint32_t whole = crc32(~0u, bytes);
  for (std::size_t split = 0; split <= bytes.size(); ++split) {
    ASSERT_EQ(crc32(crc32(~0u, Bytes(bytes).first(split)), Bytes(bytes).subspan(split)), whole);
  }
}

class Icrc : public testing::Test {
 protected:
  // A UDP payload of `size` bytes with a right ICRC at its end.
  std::vector<std::uint8_t> packet(const DatagramInfo& info, std::size_t size) {
    auto bytes = random_bytes(random_, size);
    const std::size_t body = size - kIcrcSize;
    store_icrc(MutableBytes(bytes).subspan(body), icrc(info, Bytes(bytes).first(body)));
    return bytes;
  }
  DatagramInfo ipv4() {
    return {.source = IpAddress::ipv4(random_.next_u32()),
            .destination = IpAddress::ipv4(random_.next_u32()),
            .source_port = static_cast<std::uint16_t>(random_.next())};
  }
  DatagramInfo ipv6() {
    DatagramInfo info{.source_port = static_cast<std::uint16_t>(random_.next())};
    info.source.bytes[0] = info.destination.bytes[0] = 0xfd;
    info.source.bytes[15] = static_cast<std::uint8_t>(random_.next());
    return info;
  }
  std::size_t random_size() { return Bth::kSize + kIcrcSize + random_.below(4200); }
  Random random_{3};
};

TEST_F(Icrc, IsGoodAsSentAndBadAfterAnyBitFlipOnIpv6) {
  const DatagramInfo info = ipv6();
  auto bytes = packet(info, 60);
  ASSERT_EQ(verify_icrc(info, bytes), IcrcCheck::kGood);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::uint8_t>(1u << bit % 8);
    bytes[bit / 8] ^= mask;
    const bool masked = bit / 8 == 4;  // FECN, BECN and the reserved bits of BTH may change on the way
    EXPECT_EQ(verify_icrc(info, bytes), masked ? IcrcCheck::kGood : IcrcCheck::kBad) << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST_F(Icrc, CoversAddressesAndPortsButNotTrafficClassAndHopLimit) {
  const DatagramInfo info = ipv4();
  const auto bytes = packet(info, 100);
  auto changed = info;
  changed.traffic_class = 0x77;
  changed.hop_limit = 3;
  EXPECT_EQ(verify_icrc(changed, bytes), IcrcCheck::kGood);
  changed = info;
  changed.source_port ^= 1;
  EXPECT_EQ(verify_icrc(changed, bytes), IcrcCheck::kBad);
  changed = info;
  changed.source.bytes[15] ^= 1;
  EXPECT_EQ(verify_icrc(changed, bytes), IcrcCheck::kBad);
  changed = info;
  changed.destination.bytes[12] ^= 0x80;
  EXPECT_EQ(verify_icrc(changed, bytes), IcrcCheck::kBad);
}

TEST_F(Icrc, AnUnknownIpv4IdentificationIsSolved) {
  for (int i = 0; i < 2000; ++i) {
    DatagramInfo sent = ipv4();
    sent.ipv4_id = static_cast<std::uint16_t>(1 + random_.below(65535));
    const auto bytes = packet(sent, random_size());
    DatagramInfo received = sent;
    received.ipv4_id = 0;
    ASSERT_EQ(verify_icrc(sent, bytes), IcrcCheck::kGood);
    ASSERT_EQ(verify_icrc(received, bytes), IcrcCheck::kSolvedId);
    ASSERT_EQ(solve_ipv4_id(received, bytes), sent.ipv4_id);
  }
}

TEST_F(Icrc, SolvingReachesTheLargestDatagram) {
  DatagramInfo sent = ipv4();
  sent.ipv4_id = 0xBEEF;
  const auto bytes = packet(sent, 65535 - 28);
  sent.ipv4_id = 0;
  EXPECT_EQ(solve_ipv4_id(sent, bytes), 0xBEEF);
}

TEST_F(Icrc, DamageIsNotMistakenForAnIdentification) {
  int mistaken = 0;
  constexpr int kPackets = 20000;
  for (int i = 0; i < kPackets; ++i) {
    const DatagramInfo info = ipv4();
    auto bytes = packet(info, 64);
    // Damage of the CRC's own kind, more than 32 bits wide, so that only chance can make it look like an
    // identification.
    for (std::size_t k = 20; k < 40; ++k) bytes[k] ^= static_cast<std::uint8_t>(random_.next());
    const IcrcCheck check = verify_icrc(info, bytes);
    ASSERT_NE(check, IcrcCheck::kGood);
    mistaken += check == IcrcCheck::kSolvedId;
  }
  EXPECT_LE(mistaken, 5);  // expected: 20000 / 65536
}

TEST_F(Icrc, ShortAndOversizedPayloadsAreBad) {
  Random random(9);
  for (std::size_t size = 0; size < Bth::kSize + kIcrcSize; ++size) {
    EXPECT_EQ(verify_icrc(ipv4(), random_bytes(random, size)), IcrcCheck::kBad);
    EXPECT_FALSE(solve_ipv4_id(ipv4(), random_bytes(random, size)));
  }
  EXPECT_EQ(verify_icrc(ipv4(), std::vector<std::uint8_t>(65535 - 27)), IcrcCheck::kBad);
  EXPECT_EQ(verify_icrc(ipv6(), std::vector<std::uint8_t>(65535 - 7)), IcrcCheck::kBad);
}

TEST_F(Icrc, AnIpv6PacketHasNoIdentificationToSolve) {
  const DatagramInfo info = ipv6();
  EXPECT_FALSE(solve_ipv4_id(info, packet(info, 100)));
}

}  // namespace
}  // namespace ucm::wire
