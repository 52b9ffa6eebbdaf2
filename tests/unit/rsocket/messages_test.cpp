#include "rsocket/protocol/messages.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

namespace ucm::rsocket {
namespace {

ConnectionData example() {
  return {.big_endian = false,
          .has_iomap = true,
          .credits = 384,
          .iomap_size = 5,
          .target_list = {.address = 0x1122334455667788, .key = 0x01020304, .length = 2},
          .data = {.address = 0x99AABBCCDDEEFF00, .key = 0x0A0B0C0D, .length = 65536}};
}

TEST(ConnectionDataTest, HasTheDocumentedLayout) {
  const std::array<std::uint8_t, ConnectionData::kSize> bytes = {
      1,    2,    0x01, 0x80, 0,    0,    0,    5,                                                     // header
      0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x01, 0x02, 0x03, 0x04, 0x00, 0x00, 0x00, 0x02,  // list
      0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 0x00, 0x0A, 0x0B, 0x0C, 0x0D, 0x00, 0x01, 0x00, 0x00};
  EXPECT_EQ(example().emit(), bytes);
  EXPECT_EQ(ConnectionData::parse(bytes), example());
}

TEST(ConnectionDataTest, BytesAfterItAreNotLookedAt) {
  const auto bytes = example().emit();
  std::array<std::uint8_t, 56> padded{};
  std::copy(bytes.begin(), bytes.end(), padded.begin());
  EXPECT_EQ(ConnectionData::parse(padded), example());
}

TEST(ConnectionDataTest, EveryTruncatedLengthIsRefused) {
  const auto bytes = example().emit();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ConnectionData::parse({bytes.data(), size}), std::nullopt) << size;
  }
}

TEST(ConnectionDataTest, OtherVersionsAndAnEmptyListAreRefused) {
  auto bytes = example().emit();
  bytes[0] = 2;
  EXPECT_EQ(ConnectionData::parse(bytes), std::nullopt);
  ConnectionData useless = example();
  useless.target_list.length = 0;
  EXPECT_EQ(ConnectionData::parse(useless.emit()), std::nullopt);
}

TEST(ConnectionDataTest, APeerWithoutIoMapsHasNoneWhateverItSaysOfTheirSize) {
  ConnectionData old = example();
  old.has_iomap = false;
  const auto parsed = ConnectionData::parse(old.emit());
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->iomap_size, 0);
}

TEST(IoMapSizeTest, IsExactWhileSmallAndInSteps) {
  EXPECT_EQ(rounded_iomap_size(-1), 0);
  for (const int exact : {0, 1, 127, 128}) EXPECT_EQ(rounded_iomap_size(exact), exact);
  EXPECT_EQ(rounded_iomap_size(300), 256);
  EXPECT_EQ(rounded_iomap_size(1 << 20), 127 * 256);
  ConnectionData data = example();
  data.iomap_size = rounded_iomap_size(1000);
  EXPECT_EQ(ConnectionData::parse(data.emit())->iomap_size, 768);
}

TEST(MessageTest, TypeIsInTheUpperThreeBits) {
  EXPECT_EQ((Message{MessageType::kData, 1000}.emit()), 1000u);
  EXPECT_EQ((Message{MessageType::kCredits, 0x180}.emit()), 0x80000180u);
  EXPECT_EQ((Message{MessageType::kIoMap, 7}.emit()), 0xC0000007u);
  EXPECT_EQ((Message{MessageType::kControl, 2}.emit()), 0xE0000002u);
  for (std::uint32_t type = 0; type < 8; ++type) {
    const auto parsed = Message::parse(type << 29 | 77);
    const bool known = type == 0 || type == 4 || type == 6 || type == 7;
    ASSERT_EQ(parsed.has_value(), known) << type;
    if (known) {
      EXPECT_EQ(parsed->emit(), type << 29 | 77);
    }
  }
}

TEST(EntryTest, LiesInTheByteOrderOfTheMemorysOwner) {
  const IoMapEntry entry{.offset = 0x0102030405060708,
                         .buffer = {.address = 0x1112131415161718, .key = 0x21222324, .length = 0x31323334}};
  std::array<std::uint8_t, kIoMapEntrySize> own{};
  std::array<std::uint8_t, kIoMapEntrySize> swapped{};
  store_iomap_entry(own.data(), entry, ByteOrder::kOwn);
  store_iomap_entry(swapped.data(), entry, ByteOrder::kSwapped);
  EXPECT_EQ(load_iomap_entry(own.data()), entry);
  constexpr std::array<std::size_t, 4> kSizes = {8, 8, 4, 4};
  std::size_t at = 0;
  for (const std::size_t size : kSizes) {
    for (std::size_t i = 0; i < size; ++i) EXPECT_EQ(own[at + i], swapped[at + size - 1 - i]);
    at += size;
  }
  EXPECT_EQ(own[0], std::endian::native == std::endian::little ? 0x08 : 0x01);
}

}  // namespace
}  // namespace ucm::rsocket
