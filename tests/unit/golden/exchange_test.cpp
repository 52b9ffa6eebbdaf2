// What the messages of captured exchanges say, and how they refer to each other.
#include <gtest/gtest.h>

#include <algorithm>

#include "unit/golden/captured.h"
#include "wire/cm_messages.h"
#include "wire/headers.h"
#include "wire/ip_cm.h"

namespace ucm {
namespace {

using namespace wire;
using test::captured_mads;
using test::expect_message;

template <std::size_t N>
bool is_zero(const std::array<std::uint8_t, N>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

// The BTH of the first data packet sent to `destination`.
Bth first_data_packet_to(const std::string& capture, const IpAddress& destination) {
  const auto frames = test::captured(capture);
  for (const auto& frame : frames) {
    const auto packet = test::roce_packet_in(frame);
    if (!packet || packet->info.destination != destination) continue;
    const auto bth = Bth::parse(packet->payload);
    if (bth && bth->opcode != Opcode::kRcAck && bth->destination_qpn != kGsiQpn) return *bth;
  }
  ADD_FAILURE() << "no data packet";
  return {};
}

TEST(Exchange, AConnectionFromReqToDrep) {
  const auto mads = captured_mads("full");
  ASSERT_EQ(mads.size(), 5u);
  const auto req = expect_message<Req>(mads[0]);
  const auto rep = expect_message<Rep>(mads[1]);
  const auto rtu = expect_message<Rtu>(mads[2]);
  const auto dreq = expect_message<Dreq>(mads[3]);
  const auto drep = expect_message<Drep>(mads[4]);

  EXPECT_EQ(mads[0].header.transaction_id, 0x00000004cc903c24u);
  EXPECT_EQ(req.local_comm_id, 0x243c90ccu);
  EXPECT_EQ(req.local_ca_guid, 0x742210fffedbdac2u);
  EXPECT_EQ(req.local_qpn, 0x11u);
  EXPECT_EQ(req.starting_psn, 0xbcff2du);
  EXPECT_EQ(req.primary.flow_label, 0x98892u);

  EXPECT_EQ(rep.local_comm_id, 0x253c90ccu);
  EXPECT_EQ(rep.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(rep.local_qpn, 0x11u);
  EXPECT_EQ(rep.starting_psn, 0xaf1bf5u);
  EXPECT_EQ(rep.vendor_id, 0u);
  EXPECT_EQ(rep.responder_resources, 1);
  EXPECT_EQ(rep.initiator_depth, 1);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.failover_accepted, 0);
  EXPECT_FALSE(rep.end_to_end_flow_control);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_FALSE(rep.srq);
  EXPECT_EQ(rep.local_ca_guid, 0x3492c7fffe302a03u);
  EXPECT_TRUE(is_zero(rep.private_data));

  EXPECT_EQ(rtu.local_comm_id, req.local_comm_id);
  EXPECT_EQ(rtu.remote_comm_id, rep.local_comm_id);
  EXPECT_EQ(dreq.local_comm_id, req.local_comm_id);
  EXPECT_EQ(dreq.remote_comm_id, rep.local_comm_id);
  EXPECT_EQ(dreq.remote_qpn, rep.local_qpn);
  EXPECT_EQ(drep.local_comm_id, rep.local_comm_id);
  EXPECT_EQ(drep.remote_comm_id, req.local_comm_id);

  EXPECT_EQ(mads[1].header.transaction_id, mads[0].header.transaction_id);
  EXPECT_EQ(mads[2].header.transaction_id, mads[0].header.transaction_id);
  EXPECT_EQ(mads[4].header.transaction_id, mads[3].header.transaction_id);

  // Each side's starting PSN is the one that the other side sends with.
  EXPECT_EQ(first_data_packet_to("full", req.primary.local_gid).psn, req.starting_psn);
  EXPECT_EQ(first_data_packet_to("full", req.primary.remote_gid).psn, rep.starting_psn);
}

TEST(Exchange, AConnectionOverIpv6) {
  const auto mads = captured_mads("full6");
  ASSERT_EQ(mads.size(), 5u);
  const auto req = expect_message<Req>(mads[0]);
  const auto rep = expect_message<Rep>(mads[1]);
  EXPECT_EQ(req.local_qpn, 0x14u);
  EXPECT_EQ(req.primary.flow_label, 0x6e652u);
  const auto ip_cm = IpCmHeader::parse(req.private_data);
  ASSERT_TRUE(ip_cm);
  EXPECT_EQ(ip_cm->ip_version, 6);
  EXPECT_EQ(ip_cm->source_port, 0xbc34);
  EXPECT_EQ(ip_cm->source, req.primary.local_gid);
  EXPECT_EQ(ip_cm->destination, req.primary.remote_gid);
  EXPECT_EQ(first_data_packet_to("full6", req.primary.local_gid).psn, req.starting_psn);
  EXPECT_EQ(first_data_packet_to("full6", req.primary.remote_gid).psn, rep.starting_psn);
}

TEST(Exchange, ARequestThatNobodyListensForIsRejected) {
  const auto mads = captured_mads("rej");
  ASSERT_EQ(mads.size(), 2u);
  const auto req = expect_message<Req>(mads[0]);
  const auto rej = expect_message<Rej>(mads[1]);
  EXPECT_EQ(rej.local_comm_id, 0u);
  EXPECT_EQ(rej.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(rej.message, MessageKind::kReq);
  EXPECT_EQ(rej.reason, RejReason::kInvalidServiceId);
  EXPECT_EQ(rej.ari_length, 0);
  EXPECT_TRUE(is_zero(rej.ari));
  EXPECT_TRUE(is_zero(rej.private_data));
  EXPECT_EQ(mads[1].header.transaction_id, mads[0].header.transaction_id);
}

TEST(Exchange, ARepeatedRequestIsAnsweredWithMraWhileTheServerIsBusy) {
  const auto mads = captured_mads("mra");
  ASSERT_EQ(mads.size(), 7u);
  const auto req = expect_message<Req>(mads[0]);
  EXPECT_EQ(mads[1].payload, mads[0].payload);
  EXPECT_EQ(mads[1].header.transaction_id, mads[0].header.transaction_id);
  const auto mra = expect_message<Mra>(mads[2]);
  const auto rep = expect_message<Rep>(mads[3]);
  EXPECT_EQ(mra.local_comm_id, rep.local_comm_id);
  EXPECT_EQ(mra.remote_comm_id, req.local_comm_id);
  EXPECT_EQ(mra.message, MessageKind::kReq);
  EXPECT_EQ(mra.service_timeout, 24);
  EXPECT_TRUE(is_zero(mra.private_data));
}

TEST(Exchange, RetransmissionsAreIdentical) {
  for (const std::string name : {"req", "rep-retry"}) {
    const auto mads = captured_mads(name);
    ASSERT_GE(mads.size(), 16u);
    const auto& last = mads.back();
    for (auto mad = mads.end() - 16; mad != mads.end(); ++mad) {
      EXPECT_EQ(mad->payload, last.payload);
      EXPECT_EQ(mad->header.transaction_id, last.header.transaction_id);
    }
  }
}

TEST(Exchange, ADatagramServiceIsResolved) {
  const auto mads = captured_mads("sidr");
  ASSERT_EQ(mads.size(), 2u);
  const auto request = expect_message<SidrReq>(mads[0]);
  const auto reply = expect_message<SidrRep>(mads[1]);
  EXPECT_EQ(request.request_id, 0x213c90ccu);
  EXPECT_EQ(request.pkey, 0xFFFF);
  EXPECT_EQ(request.service_id, ip_service_id(PortSpace::kUdp, 7174));
  const auto ip_cm = IpCmHeader::parse(request.private_data);
  ASSERT_TRUE(ip_cm);
  EXPECT_EQ(ip_cm->ip_version, 4);
  EXPECT_EQ(ip_cm->source_port, 0x8a6e);
  EXPECT_EQ(ip_cm->source, IpAddress::ipv4(0x0a4e0001));
  EXPECT_EQ(ip_cm->destination, IpAddress::ipv4(0x0a4e0101));

  EXPECT_EQ(reply.request_id, request.request_id);
  EXPECT_EQ(reply.status, SidrStatus::kSuccess);
  EXPECT_EQ(reply.qpn, 0x12u);
  EXPECT_EQ(reply.service_id, request.service_id);
  EXPECT_EQ(reply.qkey, 0x01234567u);
  EXPECT_EQ(reply.info_length, 0);
  EXPECT_EQ(mads[1].header.transaction_id, mads[0].header.transaction_id);
}

TEST(Exchange, ADatagramServiceThatNobodyOffersIsRefused) {
  const auto mads = captured_mads("sidrrej");
  ASSERT_EQ(mads.size(), 2u);
  const auto request = expect_message<SidrReq>(mads[0]);
  const auto reply = expect_message<SidrRep>(mads[1]);
  EXPECT_EQ(reply.request_id, request.request_id);
  EXPECT_EQ(reply.status, SidrStatus::kUnsupportedServiceId);
  EXPECT_EQ(reply.qpn, 0u);
}

TEST(Exchange, TheIbPortSpaceHasItsOwnServiceIds) {
  const auto mads = captured_mads("psib");
  ASSERT_EQ(mads.size(), 5u);
  const auto req = expect_message<Req>(mads[0]);
  EXPECT_EQ(req.service_id, ip_service_id(PortSpace::kIb, 0x1d2f));
  EXPECT_EQ(req.rnr_retry_count, 0);
  EXPECT_EQ(req.retry_count, 5);
  // The passive side ends this one.
  const auto rep = expect_message<Rep>(mads[1]);
  const auto dreq = expect_message<Dreq>(mads[3]);
  EXPECT_EQ(dreq.local_comm_id, rep.local_comm_id);
  EXPECT_EQ(dreq.remote_qpn, req.local_qpn);
}

}  // namespace
}  // namespace ucm
