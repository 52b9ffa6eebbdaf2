// The reader of capture files that the other golden tests rely on.
#include "support/pcap.h"

#include <gtest/gtest.h>

#include "unit/golden/captured.h"

namespace ucm::test {
namespace {

void append_le32(std::vector<std::uint8_t>& out, std::initializer_list<std::uint32_t> words) {
  for (const std::uint32_t word : words) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::uint8_t>(word >> 8 * i));
  }
}

// The same frames as a little-endian pcapng file: one section, one interface, one Enhanced Packet Block each.
std::vector<std::uint8_t> as_pcapng(const std::vector<Frame>& frames) {
  std::vector<std::uint8_t> file;
  append_le32(file, {0x0A0D0D0A, 28, 0x1A2B3C4D, 1, ~0u, ~0u, 28});
  append_le32(file, {1, 20, 1, 0, 20});
  for (const Frame& frame : frames) {
    const auto size = static_cast<std::uint32_t>(frame.bytes.size());
    const std::uint32_t block_size = 32 + (size + 3) / 4 * 4;
    append_le32(file, {6, block_size, 0, 0, 0, size, frame.original_size});
    file.insert(file.end(), frame.bytes.begin(), frame.bytes.end());
    file.resize(file.size() + (4 - size % 4) % 4);
    append_le32(file, {block_size});
  }
  return file;
}

TEST(Pcap, PcapAndPcapngGiveTheSameFrames) {
  const auto frames = captured("req");
  ASSERT_GT(frames.size(), 16u);
  const auto again = parse_capture(as_pcapng(frames));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->size(), frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    EXPECT_EQ((*again)[i].bytes, frames[i].bytes);
    EXPECT_EQ((*again)[i].link_type, LinkType::kEthernet);
    EXPECT_FALSE((*again)[i].is_cut());
  }
}

TEST(Pcap, AFileThatEndsEarlyIsRefused) {
  const auto file = as_pcapng(captured("rej"));
  EXPECT_TRUE(parse_capture(file));
  EXPECT_FALSE(parse_capture(Bytes(file).first(file.size() - 20)));
  EXPECT_FALSE(parse_capture(Bytes(file).first(10)));
}

TEST(Pcap, CookedCapturesHoldTheSamePackets) {
  auto frames = captured("rej");
  const auto expected = roce_packet_in(frames[0]);
  ASSERT_TRUE(expected);
  const Bytes ip = Bytes(frames[0].bytes).subspan(14);

  std::vector<std::uint8_t> sll(16);
  store_be16(&sll[14], 0x0800);
  sll.insert(sll.end(), ip.begin(), ip.end());
  std::vector<std::uint8_t> sll2(20);
  store_be16(&sll2[0], 0x0800);
  sll2.insert(sll2.end(), ip.begin(), ip.end());

  for (const Frame& frame : {Frame{.link_type = LinkType::kLinuxSll, .bytes = sll},
                             Frame{.link_type = LinkType::kLinuxSll2, .bytes = sll2}}) {
    const auto packet = roce_packet_in(frame);
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->info.source, expected->info.source);
    EXPECT_TRUE(std::ranges::equal(packet->payload, expected->payload));
  }
}

TEST(Pcap, FramesOfEveryTruncatedLengthAreHandled) {
  const auto frames = captured("full6");
  for (std::size_t size = 0; size < frames[0].bytes.size(); ++size) {
    Frame cut = frames[0];
    cut.bytes.resize(size);
    EXPECT_FALSE(roce_packet_in(cut)) << size;
    EXPECT_TRUE(cut.is_cut());
  }
}

}  // namespace
}  // namespace ucm::test
