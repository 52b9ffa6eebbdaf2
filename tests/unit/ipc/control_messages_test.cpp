#include "ipc/control_messages.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "ipc/device_list.h"

namespace ucm::ipc {
namespace {

std::vector<std::uint8_t> bytes_vector(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

TEST(ControlMessages, RequestSurvivesTheRoundTrip) {
  ControlRequest request = make_request(ControlCall::kCloseLink, 7);
  request.link = 42;
  const auto parsed = parse_request(bytes_of(request));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->header.call, ControlCall::kCloseLink);
  EXPECT_EQ(parsed->header.sequence, 7u);
  EXPECT_EQ(parsed->link, 42u);
}

TEST(ControlMessages, EveryTruncatedOrLongerRequestIsRefused) {
  auto bytes = bytes_vector(bytes_of(make_request(ControlCall::kHello, 1)));
  bytes.resize(bytes.size() + 64);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    EXPECT_EQ(parse_request(Bytes(bytes).first(size)).has_value(), size == sizeof(ControlRequest)) << size;
  }
}

TEST(ControlMessages, ASizeThatAgreesWithALongerMessageIsRefused) {
  ControlRequest request = make_request(ControlCall::kHello, 1);
  request.header.size = sizeof request + 8;
  auto bytes = bytes_vector(bytes_of(request));
  bytes.resize(request.header.size);
  EXPECT_EQ(parse_request(bytes).error().code, EPROTO);
}

TEST(ControlMessages, EveryTruncatedReplyIsRefused) {
  const auto bytes = bytes_vector(bytes_of(make_reply(make_request(ControlCall::kHello, 1))));
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    EXPECT_EQ(parse_reply(Bytes(bytes).first(size)).has_value(), size == bytes.size()) << size;
  }
}

TEST(ControlMessages, AnotherVersionIsToldApartFromGarbage) {
  ControlRequest request = make_request(ControlCall::kHello, 1);
  request.header.version = kProtocolVersion + 1;
  EXPECT_EQ(parse_request(bytes_of(request)).error().code, EPROTONOSUPPORT);
  request.header.magic = 0;
  EXPECT_EQ(parse_request(bytes_of(request)).error().code, EPROTO);
}

TEST(ControlMessages, UnknownCallsAndRolesAreRefused) {
  for (const int call : {0, kControlCallLast + 1, 0xFFFF}) {
    const auto request = make_request(static_cast<ControlCall>(call), 1);
    EXPECT_FALSE(parse_request(bytes_of(request)).has_value()) << call;
  }
  ControlRequest request = make_request(ControlCall::kHello, 1);
  request.role = static_cast<Role>(2);
  EXPECT_FALSE(parse_request(bytes_of(request)).has_value());
}

TEST(ControlMessages, TextsOfAReplyAlwaysEnd) {
  ControlReply reply = make_reply(make_request(ControlCall::kHello, 1));
  reply.message.fill('x');
  reply.daemon_version.fill('y');
  const auto parsed = parse_reply(bytes_of(reply));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(text_of(parsed->message).size(), reply.message.size() - 1);
  EXPECT_EQ(text_of(parsed->daemon_version).size(), reply.daemon_version.size() - 1);
}

TEST(ControlMessages, ReplyValuesOutOfRangeAreRefused) {
  ControlReply reply = make_reply(make_request(ControlCall::kAllocateQpns, 1));
  reply.qpn_count = kQpnBlockSize + 1;
  EXPECT_FALSE(parse_reply(bytes_of(reply)).has_value());
  reply.qpn_count = 0;
  reply.descriptor_count = kDescriptorsMax + 1;
  EXPECT_FALSE(parse_reply(bytes_of(reply)).has_value());
}

std::vector<host::Device> two_devices() {
  host::Device lo{.ifindex = 1, .interface_name = "lo", .mtu = 65536, .guid = 1, .loopback = true, .addresses = {}};
  lo.addresses.push_back({wire::IpAddress::ipv4(0x7f000001), 8});
  host::Device eth{
      .ifindex = 2, .interface_name = "enp0s31f6", .mtu = 1500, .guid = 2, .mac = {1, 2, 3, 4, 5, 6}, .addresses = {}};
  eth.addresses.push_back({wire::IpAddress::ipv4(0x0a000001), 24});
  eth.addresses.push_back({wire::IpAddress::ipv4(0x0a000002), 24});
  return {lo, eth};
}

TEST(DeviceList, SurvivesTheRoundTrip) {
  const auto parsed = parse_devices(emit_devices(two_devices()));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(*parsed, two_devices());
}

TEST(DeviceList, EveryTruncationIsRefusedUnlessItEndsBetweenDevices) {
  const auto bytes = emit_devices(two_devices());
  const std::size_t first_device = sizeof(DeviceRecord) + sizeof(AddressRecord);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const bool whole = size == 0 || size == first_device || size == bytes.size();
    EXPECT_EQ(parse_devices(Bytes(bytes).first(size)).has_value(), whole) << size;
  }
}

TEST(DeviceList, AnAddressCountBeyondTheBytesIsRefused) {
  auto bytes = emit_devices(two_devices());
  bytes[offsetof(DeviceRecord, address_count) + 3] = 0xFF;
  EXPECT_FALSE(parse_devices(bytes).has_value());
}

}  // namespace
}  // namespace ucm::ipc
