// Two REQs of a Linux peer, from the IP header to the ICRC, and everything they say.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "support/pcap.h"
#include "wire/cm_messages.h"
#include "wire/icrc.h"
#include "wire/ip_cm.h"
#include "wire/ud_packet.h"

namespace ucm::wire {
namespace {

// Hexadecimal digits to bytes; "*N" stands for N zero bytes; spaces separate.
std::vector<std::uint8_t> from_hex(std::string_view text) {
  std::vector<std::uint8_t> bytes;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.starts_with('*')) {
      bytes.resize(bytes.size() + std::stoul(word.substr(1)));
    } else {
      for (std::size_t i = 0; i + 1 < word.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoul(word.substr(i, 2), nullptr, 16)));
      }
    }
  }
  return bytes;
}

constexpr std::string_view kReqOverIpv4 =
    "4500013498a6400040118c760a4d00020a4d0001 d87212b701200000 6400ffff0000000180000000 8001000000000001 "
    "010702030000000000000002785e0ec00010000000000000 "
    "c00e5e78000000000000000001061c06505400fffe7700020000000000000000000011010000000100 "
    "0000a0d6bd57a7ffff37f0ffffffff "
    "00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0001 77b44000 00400098 *44 "
    "0040c102 *12 0a4d0002 *12 0a4d0001 *56 29aa16e0";

constexpr std::string_view kReqOverIpv6 =
    "6000000001201140 fd770000000000000000000000000002 fd770000000000000000000000000001 d87212b701200000 "
    "6400ffff0000000180000005 8001000000000001 010702030000000000000002785e0ec10010000000000000 "
    "c10e5e78000000000000000001061c06505400fffe77000200000000000000000000120100000001000000a0ea4a6ca7ffff37f0ffffffff "
    "fd770000000000000000000000000002 fd770000000000000000000000000001 98a63000 00400098 *44 "
    "0060d203 fd770000000000000000000000000002 fd770000000000000000000000000001 *56 37dea0ee";

IpAddress ipv6(std::uint8_t last) {
  IpAddress address{{0xfd, 0x77}};
  address.bytes[15] = last;
  return address;
}

struct Expected {
  std::uint32_t local_comm_id;
  std::uint32_t qpn;
  std::uint32_t starting_psn;
  std::uint32_t flow_label;
  std::uint16_t source_port;
  std::uint8_t ip_version;
  IpAddress active;
  IpAddress passive;
  std::uint32_t icrc;
};

void expect_req(std::string_view hex, const Expected& expected) {
  const auto bytes = from_hex(hex);
  const test::Frame frame{
      .link_type = test::LinkType::kRawIp, .original_size = static_cast<std::uint32_t>(bytes.size()), .bytes = bytes};
  const auto packet = test::roce_packet_in(frame);
  ASSERT_TRUE(packet);
  EXPECT_EQ(packet->info.source, expected.active);
  EXPECT_EQ(packet->info.destination, expected.passive);
  EXPECT_EQ(packet->info.source_port, 0xD872);
  EXPECT_EQ(packet->info.hop_limit, 64);
  EXPECT_EQ(icrc(packet->info, packet->payload.first(packet->payload.size() - kIcrcSize)), expected.icrc);
  EXPECT_EQ(verify_icrc(packet->info, packet->payload), IcrcCheck::kGood);

  const auto mad = parse_gsi_packet(packet->payload);
  ASSERT_TRUE(mad);
  const auto req = Req::parse(mad->subspan(MadHeader::kSize));
  ASSERT_TRUE(req);
  EXPECT_EQ(req->local_comm_id, expected.local_comm_id);
  EXPECT_EQ(req->vendor_id, 0u);
  EXPECT_EQ(req->service_id, ip_service_id(PortSpace::kTcp, 7174));
  EXPECT_EQ(req->local_ca_guid, 0x505400fffe770002u);
  EXPECT_EQ(req->local_qkey, 0u);
  EXPECT_EQ(req->local_qpn, expected.qpn);
  EXPECT_EQ(req->responder_resources, 1);
  EXPECT_EQ(req->initiator_depth, 1);
  EXPECT_EQ(req->remote_cm_response_timeout, 20);
  EXPECT_EQ(req->transport_service, TransportService::kRc);
  EXPECT_FALSE(req->end_to_end_flow_control);
  EXPECT_EQ(req->starting_psn, expected.starting_psn);
  EXPECT_EQ(req->local_cm_response_timeout, 20);
  EXPECT_EQ(req->retry_count, 7);
  EXPECT_EQ(req->pkey, 0xFFFF);
  EXPECT_EQ(req->path_mtu, 3);
  EXPECT_FALSE(req->rdc_exists);
  EXPECT_EQ(req->rnr_retry_count, 7);
  EXPECT_EQ(req->max_cm_retries, 15);
  EXPECT_FALSE(req->srq);
  EXPECT_EQ(req->primary.local_lid, 0xFFFF);
  EXPECT_EQ(req->primary.remote_lid, 0xFFFF);
  EXPECT_EQ(req->primary.local_gid, expected.active);
  EXPECT_EQ(req->primary.remote_gid, expected.passive);
  EXPECT_EQ(req->primary.flow_label, expected.flow_label);
  EXPECT_EQ(req->primary.packet_rate, 0);
  EXPECT_EQ(req->primary.traffic_class, 0);
  EXPECT_EQ(req->primary.hop_limit, 64);
  EXPECT_EQ(req->primary.sl, 0);
  EXPECT_FALSE(req->primary.subnet_local);
  EXPECT_EQ(req->primary.local_ack_timeout, 19);
  EXPECT_EQ(req->alternate.local_lid, 0);

  const auto ip_cm = IpCmHeader::parse(req->private_data);
  ASSERT_TRUE(ip_cm);
  EXPECT_EQ(ip_cm->version, 0);
  EXPECT_EQ(ip_cm->ip_version, expected.ip_version);
  EXPECT_EQ(ip_cm->source_port, expected.source_port);
  EXPECT_EQ(ip_cm->source, expected.active);
  EXPECT_EQ(ip_cm->destination, expected.passive);
}

TEST(LinuxReq, OverIpv4) {
  expect_req(kReqOverIpv4, {.local_comm_id = 0xc00e5e78,
                            .qpn = 0x11,
                            .starting_psn = 0xd6bd57,
                            .flow_label = 0x77b44,
                            .source_port = 49410,
                            .ip_version = 4,
                            .active = IpAddress::ipv4(0x0a4d0002),
                            .passive = IpAddress::ipv4(0x0a4d0001),
                            .icrc = 0xE016AA29});
}

TEST(LinuxReq, OverIpv6) {
  expect_req(kReqOverIpv6, {.local_comm_id = 0xc10e5e78,
                            .qpn = 0x12,
                            .starting_psn = 0xea4a6c,
                            .flow_label = 0x98a63,
                            .source_port = 53763,
                            .ip_version = 6,
                            .active = ipv6(2),
                            .passive = ipv6(1),
                            .icrc = 0xEEA0DE37});
}

}  // namespace
}  // namespace ucm::wire
