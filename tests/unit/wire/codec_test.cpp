#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/random_bytes.h"
#include "wire/cm_messages.h"
#include "wire/headers.h"
#include "wire/ip_cm.h"
#include "wire/mad.h"

namespace ucm::wire {
namespace {

using test::random_bytes;

// Reserved bits of a layout: they are ignored by parse() and written as zero.
struct Reserved {
  std::size_t offset;
  std::uint8_t mask;
};

template <class T>
struct Layout;  // kSize, and the reserved bits as the specification lists them

#define UCM_LAYOUT(Type, size, ...)                                   \
  template <>                                                         \
  struct Layout<Type> {                                               \
    static constexpr std::size_t kSize = size;                        \
    static std::vector<Reserved> reserved() { return {__VA_ARGS__}; } \
  }

UCM_LAYOUT(Bth, 12, {1, 0x0F}, {4, 0xFF}, {8, 0x7F});
UCM_LAYOUT(Deth, 8, {4, 0xFF});
UCM_LAYOUT(XrcEth, 4, {0, 0xFF});
UCM_LAYOUT(Reth, 16);
UCM_LAYOUT(AtomicEth, 28);
UCM_LAYOUT(Aeth, 4);
UCM_LAYOUT(AtomicAckEth, 8);
UCM_LAYOUT(ImmDt, 4);
UCM_LAYOUT(Ieth, 4);
UCM_LAYOUT(MadHeader, 24);
UCM_LAYOUT(Req, 232, {4, 0xFF}, {24, 0xFF}, {25, 0xFF}, {26, 0xFF}, {27, 0xFF}, {90, 0x0F}, {91, 0xC0}, {94, 0x07},
           {95, 0x07}, {134, 0x0F}, {135, 0xC0}, {138, 0x07}, {139, 0x07});
UCM_LAYOUT(Rep, 232, {27, 0x0F});
UCM_LAYOUT(Rtu, 232);
UCM_LAYOUT(Mra, 232, {8, 0x3F}, {9, 0x07});
UCM_LAYOUT(Rej, 232, {8, 0x3F}, {9, 0x01});
UCM_LAYOUT(Dreq, 232, {11, 0xFF});
UCM_LAYOUT(Drep, 232);
UCM_LAYOUT(SidrReq, 232, {6, 0xFF}, {7, 0xFF});
UCM_LAYOUT(SidrRep, 232);
UCM_LAYOUT(Lap, 232, {8, 0xFF}, {9, 0xFF}, {10, 0xFF}, {11, 0xFF}, {15, 0x07}, {16, 0xFF}, {17, 0xFF}, {18, 0xFF},
           {19, 0xFF}, {58, 0x0F}, {61, 0xC0}, {62, 0x07}, {63, 0x07});
UCM_LAYOUT(Apr, 232, {10, 0xFF}, {11, 0xFF});

template <class T>
class Codec : public testing::Test {
 protected:
  // Random bytes whose reserved bits are zero: what emit() can reproduce.
  std::vector<std::uint8_t> random_message() {
    auto bytes = random_bytes(random_, Layout<T>::kSize);
    for (const auto& [offset, mask] : Layout<T>::reserved()) bytes[offset] &= static_cast<std::uint8_t>(~mask);
    return bytes;
  }
  Random random_{11};
};

using AllCodecs = testing::Types<Bth, Deth, XrcEth, Reth, AtomicEth, Aeth, AtomicAckEth, ImmDt, Ieth, MadHeader, Req,
                                 Rep, Rtu, Mra, Rej, Dreq, Drep, SidrReq, SidrRep, Lap, Apr>;
TYPED_TEST_SUITE(Codec, AllCodecs);

TYPED_TEST(Codec, RandomValuesSurviveParseAndEmit) {
  for (int i = 0; i < 500; ++i) {
    const auto bytes = this->random_message();
    const auto message = TypeParam::parse(bytes);
    ASSERT_TRUE(message);
    std::vector<std::uint8_t> emitted(bytes.size(), 0xA5);
    message->emit(emitted);
    ASSERT_EQ(emitted, bytes);
  }
}

TYPED_TEST(Codec, ReservedBitsAreIgnoredAndEmittedAsZero) {
  for (const auto& [offset, mask] : Layout<TypeParam>::reserved()) {
    // The transport version of BTH is the one reserved field that must be zero.
    if (std::is_same_v<TypeParam, Bth> && offset == 1) continue;
    const auto bytes = this->random_message();
    auto dirty = bytes;
    dirty[offset] |= mask;
    const auto message = TypeParam::parse(dirty);
    ASSERT_TRUE(message);
    std::vector<std::uint8_t> emitted(bytes.size(), 0xA5);
    message->emit(emitted);
    EXPECT_EQ(emitted, bytes) << "reserved bits at " << offset;
  }
}

TYPED_TEST(Codec, EveryTruncatedLengthIsRefused) {
  const auto bytes = this->random_message();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(TypeParam::parse(Bytes(bytes).first(size))) << size;
  }
}

template <class T>
class CmMessage : public testing::Test {};
using CmMessages = testing::Types<Req, Rep, Rtu, Mra, Rej, Dreq, Drep, SidrReq, SidrRep, Lap, Apr>;
TYPED_TEST_SUITE(CmMessage, CmMessages);

TYPED_TEST(CmMessage, AnyOtherSizeThanTheMadPayloadIsRefused) {
  const std::vector<std::uint8_t> long_payload(kMadPayloadSize + 1);
  EXPECT_FALSE(TypeParam::parse(long_payload));
}

TYPED_TEST(CmMessage, EmitRefusesABufferOfAnotherSize) {
  std::vector<std::uint8_t> small(kMadPayloadSize - 1);
  EXPECT_DEATH(TypeParam{}.emit(small), "check failed");
}

TEST(Bth, ATransportVersionOtherThanZeroIsRefused) {
  std::vector<std::uint8_t> bytes(Bth::kSize);
  ASSERT_TRUE(Bth::parse(bytes));
  for (std::uint8_t version = 1; version < 16; ++version) {
    bytes[1] = version;
    EXPECT_FALSE(Bth::parse(bytes));
  }
}

TEST(ImmDt, TheApplicationsBytesTravelAsTheyAre) {
  const std::array<std::uint8_t, 4> application = {1, 2, 3, 4};
  ImmDt header;
  std::memcpy(&header.immediate, application.data(), 4);
  std::array<std::uint8_t, 4> wire{};
  header.emit(wire);
  EXPECT_EQ(wire, application);
}

TEST(Emit, ValuesThatDoNotFitTheirFieldsAreRefused) {
  std::array<std::uint8_t, kMadPayloadSize> out;
  EXPECT_DEATH(Bth{.psn = 1u << 24}.emit(out), "check failed");
  EXPECT_DEATH(Bth{.pad_count = 4}.emit(out), "check failed");
  EXPECT_DEATH(Aeth{.msn = 1u << 24}.emit(out), "check failed");
  EXPECT_DEATH(Req{.local_qpn = 1u << 24}.emit(out), "check failed");
  EXPECT_DEATH(Req{.retry_count = 8}.emit(out), "check failed");
  EXPECT_DEATH(Req{.primary = {.flow_label = 1u << 20}}.emit(out), "check failed");
  EXPECT_DEATH(Rep{.vendor_id = 1u << 24}.emit(out), "check failed");
  EXPECT_DEATH(Mra{.service_timeout = 32}.emit(out), "check failed");
  EXPECT_DEATH(Rej{.ari_length = 128}.emit(out), "check failed");
}

// One field at a time, at the offset the specification gives: a layout that is merely consistent with itself would pass
// the round trips above.
TEST(Layout, VendorIdOfAnswersIsScattered) {
  std::array<std::uint8_t, kMadPayloadSize> out;
  Rep{.vendor_id = 0x0a0b0c}.emit(out);
  EXPECT_EQ(out[15], 0x0a);
  EXPECT_EQ(out[19], 0x0b);
  EXPECT_EQ(out[23], 0x0c);
  SidrRep{.vendor_id = 0x0a0b0c}.emit(out);
  EXPECT_EQ(out[6], 0x0a);
  EXPECT_EQ(out[7], 0x0b);
  EXPECT_EQ(out[11], 0x0c);
}

TEST(Layout, LapFieldsLieWhereTheSpecificationPutsThem) {
  std::vector<std::uint8_t> bytes(kMadPayloadSize);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  const auto lap = Lap::parse(bytes);
  ASSERT_TRUE(lap);
  EXPECT_EQ(lap->local_comm_id, 0x00010203u);
  EXPECT_EQ(lap->remote_comm_id, 0x04050607u);
  EXPECT_EQ(lap->remote_qpn, 0x0c0d0eu);
  EXPECT_EQ(lap->remote_cm_response_timeout, 0x0f >> 3);
  EXPECT_EQ(lap->alternate.local_lid, 0x1415);
  EXPECT_EQ(lap->alternate.remote_lid, 0x1617);
  EXPECT_EQ(lap->alternate.local_gid.bytes[0], 24);
  EXPECT_EQ(lap->alternate.remote_gid.bytes[15], 55);
  EXPECT_EQ(lap->alternate.flow_label, 0x38393a >> 4);
  EXPECT_EQ(lap->alternate.traffic_class, 59);
  EXPECT_EQ(lap->alternate.hop_limit, 60);
  EXPECT_EQ(lap->alternate.packet_rate, 61);
  EXPECT_EQ(lap->alternate.sl, 62 >> 4);
  EXPECT_TRUE(lap->alternate.subnet_local);
  EXPECT_EQ(lap->alternate.local_ack_timeout, 63 >> 3);
  EXPECT_EQ(lap->private_data[0], 64);
}

TEST(Layout, AprFieldsLieWhereTheSpecificationPutsThem) {
  std::vector<std::uint8_t> bytes(kMadPayloadSize);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  const auto apr = Apr::parse(bytes);
  ASSERT_TRUE(apr);
  EXPECT_EQ(apr->local_comm_id, 0x00010203u);
  EXPECT_EQ(apr->remote_comm_id, 0x04050607u);
  EXPECT_EQ(apr->info_length, 8);
  EXPECT_EQ(apr->status, 9);
  EXPECT_EQ(apr->info[0], 12);
  EXPECT_EQ(apr->private_data[0], 84);
}

TEST(IpCmHeader, Ipv4AddressesTravelBehindTwelveZeroBytes) {
  const IpCmHeader header{.ip_version = 4,
                          .source_port = 49410,
                          .source = IpAddress::ipv4(0x0a4d0002),
                          .destination = IpAddress::ipv4(0x0a4d0001)};
  std::vector<std::uint8_t> bytes(IpCmHeader::kSize, 0xA5);
  header.emit(bytes);
  std::vector<std::uint8_t> expected(IpCmHeader::kSize);
  expected[1] = 0x40;
  store_be16(&expected[2], 49410);
  store_be32(&expected[16], 0x0a4d0002);
  store_be32(&expected[32], 0x0a4d0001);
  EXPECT_EQ(bytes, expected);

  const auto parsed = IpCmHeader::parse(bytes);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->ip_version, 4);
  EXPECT_EQ(parsed->source_port, 49410);
  EXPECT_EQ(parsed->source, header.source);
  EXPECT_EQ(parsed->destination, header.destination);
}

TEST(IpCmHeader, AnyVersionIsReportedAndLowBitsOfTheIpVersionByteAreIgnored) {
  Random random(5);
  for (int i = 0; i < 500; ++i) {
    auto bytes = random_bytes(random, IpCmHeader::kSize);
    if (bytes[1] >> 4 == 4) continue;
    const auto header = IpCmHeader::parse(bytes);
    ASSERT_TRUE(header);
    EXPECT_EQ(header->version, bytes[0]);
    EXPECT_EQ(header->ip_version, bytes[1] >> 4);
    bytes[1] &= 0xF0;
    std::vector<std::uint8_t> emitted(IpCmHeader::kSize);
    header->emit(emitted);
    ASSERT_EQ(emitted, bytes);
  }
}

TEST(IpCmHeader, EveryTruncatedLengthIsRefused) {
  const std::vector<std::uint8_t> bytes(IpCmHeader::kSize);
  for (std::size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(IpCmHeader::parse(Bytes(bytes).first(size)));
}

TEST(IpCmHeader, EmitRefusesAnIpv6AddressInAnIpv4Header) {
  std::vector<std::uint8_t> bytes(IpCmHeader::kSize);
  const IpCmHeader header{.ip_version = 4, .source = IpAddress{}, .destination = IpAddress{}};
  EXPECT_DEATH(header.emit(bytes), "check failed");
}

TEST(ServiceId, HoldsPortSpaceAndPort) { EXPECT_EQ(ip_service_id(PortSpace::kTcp, 7174), 0x0000000001061c06u); }

}  // namespace
}  // namespace ucm::wire
