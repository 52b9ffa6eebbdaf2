// The captured packets, read once per test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/pcap.h"
#include "wire/mad.h"
#include "wire/ud_packet.h"

namespace ucm::test {

// The frames of tests/golden/captures/<name>.pcap; fails the test when they cannot be read.
inline std::vector<Frame> captured(const std::string& name) {
  auto frames = read_capture(std::string(UCM_TEST_DATA) + "/captures/" + name + ".pcap");
  if (!frames) {
    ADD_FAILURE() << frames.error().message;
    return {};
  }
  return std::move(*frames);
}

struct Mad {
  wire::MadHeader header;
  std::vector<std::uint8_t> payload;
};

// The MADs of a capture in the order seen.
inline std::vector<Mad> captured_mads(const std::string& name) {
  std::vector<Mad> mads;
  for (const Frame& frame : captured(name)) {
    const auto packet = roce_packet_in(frame);
    const auto mad = packet ? wire::parse_gsi_packet(packet->payload) : std::nullopt;
    if (!mad) continue;
    const auto payload = mad->subspan(wire::MadHeader::kSize);
    mads.push_back({*wire::MadHeader::parse(*mad), {payload.begin(), payload.end()}});
  }
  return mads;
}

// A MAD as the message it is expected to be; fails the test and returns an empty message when it is another.
template <class Message>
Message expect_message(const Mad& mad) {
  EXPECT_EQ(mad.header.attribute, Message::kAttribute);
  const auto message = Message::parse(mad.payload);
  EXPECT_TRUE(message);
  return mad.header.attribute == Message::kAttribute && message ? *message : Message{};
}

}  // namespace ucm::test
