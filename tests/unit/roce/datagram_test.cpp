// UD queue pairs: one packet per message, a GRH area in front, and silence for whatever does not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pair.h"
#include "wire/headers.h"

namespace ucm::roce::test {
namespace {

constexpr std::uint32_t kQkey = 0x01234567;
constexpr std::uint32_t kGrh = 40;

struct UdEnd : End {
  AhId ah{};
};

class DatagramTest : public testing::Test {
 protected:
  void open(UdEnd& end, Host& host, Qpn qpn) {
    end.host = &host;
    end.qpn = qpn;
    Engine& engine = host.engine;
    end.pd = *engine.alloc_pd();
    end.send_cq = *engine.create_cq(64, 1);
    end.recv_cq = *engine.create_cq(64, 2);
    end.storage.assign(2048, 0);
    end.keys = *engine.reg_mr({.pd = end.pd,
                               .address = end.memory(),
                               .length = end.memory_size(),
                               .iova = end.address(),
                               .access = kAccessLocalWrite});
    QpParams params{
        .qpn = qpn,
        .type = QpType::kUd,
        .pd = end.pd,
        .send_cq = end.send_cq,
        .recv_cq = end.recv_cq,
        .capacity = {.send_wr_max = 16, .recv_wr_max = 16, .send_sge_max = 2, .recv_sge_max = 2, .inline_max = 64}};
    ASSERT_TRUE(engine.create_qp(params));
    ASSERT_TRUE(engine.modify_qp(0, qpn, {.state = QpState::kInit, .qkey = kQkey}, kQpState | kQpQkey));
    ASSERT_TRUE(engine.modify_qp(0, qpn, {.state = QpState::kRtr, .path_mtu = 3}, kQpState | kQpPathMtu));
    ASSERT_TRUE(engine.modify_qp(0, qpn, {.state = QpState::kRts, .sq_psn = 0xFFFFFF}, kQpState | kQpSqPsn));
  }
  void address(UdEnd& from, const UdEnd& to, std::uint8_t traffic_class = 0) {
    from.ah = *from.engine().create_ah(
        from.pd,
        {.local = from.host->address, .remote = to.host->address, .traffic_class = traffic_class, .hop_limit = 17});
  }
  Result<void> send(UdEnd& from, const UdEnd& to, std::uint32_t length, std::uint32_t qkey = kQkey) {
    const Sge sge = from.sge(0, length);
    return from.engine().post_send(network.now(), from.qpn,
                                   {.wr_id = 3,
                                    .opcode = SendOpcode::kSendImm,
                                    .signaled = true,
                                    .immediate = 0xAABBCCDD,
                                    .ah = from.ah,
                                    .remote_qpn = to.qpn,
                                    .remote_qkey = qkey,
                                    .sges = {&sge, 1}});
  }
  void recv(UdEnd& end, std::uint32_t length) {
    const Sge sge = end.sge(8192, length);
    ASSERT_TRUE(end.engine().post_recv(network.now(), end.qpn, {.wr_id = 4, .sges = {&sge, 1}}));
  }
  void settle() {
    network.run_until([] { return false; }, kNanosecondsPerSecond);
  }

  Network network{1};
};

TEST_F(DatagramTest, ArrivesWithItsIpv4HeaderInFront) {
  UdEnd a, b;
  open(a, network.add_host(0x0A000001), 0x31);
  open(b, network.add_host(0x0A000002), 0x32);
  address(a, b, 0x10);
  fill(a, 0, 101, 1);
  recv(b, 200);
  ASSERT_TRUE(send(a, b, 101));
  settle();
  ASSERT_EQ(a.poll_send().size(), 1u);
  const std::vector<Completion> received = b.poll_recv();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(received[0].byte_count, 101 + kGrh);
  EXPECT_TRUE(received[0].has_grh);
  EXPECT_EQ(received[0].source_qpn, a.qpn);
  EXPECT_EQ(received[0].immediate, 0xAABBCCDDu);
  const std::uint8_t* grh = b.memory() + 8192;
  EXPECT_EQ(std::memcmp(grh + kGrh, a.memory(), 101), 0);
  const std::uint8_t* ip = grh + 20;
  EXPECT_EQ(ip[0], 0x45);
  EXPECT_EQ(ip[1], 0x10);
  EXPECT_EQ(load_be16(ip + 2), 20 + 8 + 12 + 8 + 4 + 104 + 4);
  EXPECT_EQ(ip[8], 17);
  EXPECT_EQ(load_be32(ip + 12), 0x0A000001u);
  EXPECT_EQ(load_be32(ip + 16), 0x0A000002u);
  std::uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += load_be16(ip + i);
  EXPECT_EQ((sum & 0xFFFF) + (sum >> 16), 0xFFFFu) << "header checksum";
}

TEST_F(DatagramTest, ArrivesWithItsIpv6HeaderInFront) {
  wire::IpAddress one, two;
  one.bytes[0] = two.bytes[0] = 0xfd;
  one.bytes[15] = 1;
  two.bytes[15] = 2;
  UdEnd a, b;
  open(a, network.add_host(one), 0x31);
  open(b, network.add_host(two), 0x32);
  address(a, b);
  recv(b, 200);
  ASSERT_TRUE(send(a, b, 0));
  settle();
  ASSERT_EQ(b.poll_recv().size(), 1u);
  const std::uint8_t* grh = b.memory() + 8192;
  EXPECT_EQ(grh[0] >> 4, 6);
  EXPECT_EQ(grh[7], 17);
  EXPECT_TRUE(std::equal(one.bytes.begin(), one.bytes.end(), grh + 8));
  EXPECT_TRUE(std::equal(two.bytes.begin(), two.bytes.end(), grh + 24));
}

TEST_F(DatagramTest, ToItselfGoesThroughTheNetworkToo) {
  UdEnd a;
  open(a, network.add_host(0x7F000001), 0x31);
  address(a, a);
  recv(a, 200);
  ASSERT_TRUE(send(a, a, 10));
  settle();
  EXPECT_EQ(network.packets_carried(), 1u);
  EXPECT_EQ(a.poll_recv().size(), 1u);
}

TEST_F(DatagramTest, WhatCannotBeReceivedIsDroppedAndCounted) {
  UdEnd a, b;
  open(a, network.add_host(0x0A000001), 0x31);
  open(b, network.add_host(0x0A000002), 0x32);
  address(a, b);
  ASSERT_TRUE(send(a, b, 10));
  settle();
  EXPECT_EQ(b.engine().counters().no_receive, 1u);
  recv(b, kGrh + 9);
  ASSERT_TRUE(send(a, b, 10));
  settle();
  EXPECT_EQ(b.engine().counters().no_receive, 2u) << "too short";
  ASSERT_TRUE(send(a, b, 9, kQkey + 1));
  settle();
  EXPECT_EQ(b.engine().counters().qkey_violations, 1u);
  EXPECT_TRUE(b.poll_recv().empty());
  ASSERT_TRUE(send(a, b, 9));
  settle();
  EXPECT_EQ(b.poll_recv().size(), 1u) << "the receive is still there";
  EXPECT_EQ(a.poll_send().size(), 4u) << "the sender never knows";
}

TEST_F(DatagramTest, TheTopBitOfAQkeySendsTheQueuePairsOwn) {
  UdEnd a, b;
  open(a, network.add_host(0x0A000001), 0x31);
  open(b, network.add_host(0x0A000002), 0x32);
  address(a, b);
  recv(b, 200);
  ASSERT_TRUE(send(a, b, 10, 0x80000000));
  settle();
  EXPECT_EQ(b.poll_recv().size(), 1u);
}

TEST_F(DatagramTest, LongerThanThePathMtuIsCompletedButNotSent) {
  UdEnd a;
  open(a, network.add_host(0x0A000001), 0x31);
  address(a, a);
  recv(a, 1024 + kGrh);
  ASSERT_TRUE(send(a, a, 1025));
  ASSERT_TRUE(send(a, a, 1024));
  ASSERT_TRUE(send(a, a, 2000));
  settle();
  const std::vector<Completion> sent = a.poll_send();
  ASSERT_EQ(sent.size(), 3u);
  for (const Completion& completion : sent) EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
  EXPECT_EQ(network.packets_carried(), 1u);
  EXPECT_EQ(a.poll_recv().size(), 1u);
  EXPECT_EQ(a.engine().counters().datagrams_too_long, 2u);
}

TEST_F(DatagramTest, WithoutAddressOrWithAnotherOperationThanSendIsRefused) {
  UdEnd a;
  open(a, network.add_host(0x0A000001), 0x31);
  EXPECT_EQ(send(a, a, 10).error().code, EINVAL);
  address(a, a);
  const Sge sge = a.sge(0, 1);
  EXPECT_FALSE(a.engine().post_send(0, a.qpn, {.opcode = SendOpcode::kWrite, .ah = a.ah, .sges = {&sge, 1}}));
}

TEST_F(DatagramTest, ALocalErrorStopsOnlyTheSendQueue) {
  UdEnd a;
  open(a, network.add_host(0x0A000001), 0x31);
  address(a, a);
  recv(a, 200);
  Sge bad = a.sge(0, 10);
  bad.lkey ^= 1;
  ASSERT_TRUE(a.engine().post_send(0, a.qpn, {.wr_id = 1, .ah = a.ah, .remote_qpn = a.qpn, .sges = {&bad, 1}}));
  ASSERT_TRUE(send(a, a, 10));
  settle();
  const std::vector<Completion> sent = a.poll_send();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].status, CompletionStatus::kLocalProtection);
  EXPECT_EQ(sent[1].status, CompletionStatus::kFlushed);
  EXPECT_EQ(a.state(), QpState::kSqe);
  ASSERT_TRUE(a.engine().modify_qp(0, a.qpn, {.state = QpState::kRts}, kQpState));
  ASSERT_TRUE(send(a, a, 10));
  settle();
  EXPECT_EQ(a.poll_recv().size(), 1u);
}

class Multicast : public DatagramTest {
 protected:
  static constexpr std::uint32_t kIfindex = 3;

  void SetUp() override {
    open(a_, network.add_host(0x0A000001), 0x31);
    open(b_, network.add_host(0x0A000002), 0x32);
    a_.ah = *a_.engine().create_ah(a_.pd, {.local = a_.host->address, .remote = kGroup.address, .ifindex = kIfindex});
  }
  // Sends `length` bytes to the group and gives the packet to b's engine, as received on `ifindex`.
  void send_to_group(std::uint32_t length, std::uint32_t ifindex = kIfindex) {
    const Sge sge = a_.sge(0, length);
    ASSERT_TRUE(a_.engine().post_send(0, a_.qpn,
                                      {.opcode = SendOpcode::kSend,
                                       .ah = a_.ah,
                                       .remote_qpn = wire::kMulticastQpn,
                                       .remote_qkey = kQkey,
                                       .sges = {&sge, 1}}));
    wire::DatagramInfo info;
    std::vector<std::uint8_t> packet(kPacketSizeMax);
    packet.resize(a_.engine().poll_packet(0, 0xC123, info, packet));
    ASSERT_FALSE(packet.empty());
    EXPECT_EQ(info.destination, kGroup.address);
    EXPECT_EQ(info.ifindex, kIfindex);
    info.ifindex = ifindex;
    b_.engine().on_packet(0, info, packet);
  }

  const wire::MulticastGroup kGroup{wire::IpAddress::ipv4(0xEF010203), kIfindex};
  UdEnd a_, b_;
};

TEST_F(Multicast, ACopyGoesToEveryQueuePairOfTheGroup) {
  UdEnd other;
  open(other, *b_.host, 0x33);
  EXPECT_EQ(b_.engine().attach_multicast(b_.qpn, kGroup), true);
  EXPECT_EQ(b_.engine().attach_multicast(b_.qpn, kGroup), false) << "again";
  EXPECT_EQ(b_.engine().attach_multicast(other.qpn, kGroup), true);
  recv(b_, 200);
  recv(other, 200);
  fill(a_, 0, 100, 1);
  send_to_group(100);
  for (UdEnd* end : {&b_, &other}) {
    const std::vector<Completion> received = end->poll_recv();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].byte_count, 100 + kGrh);
    EXPECT_EQ(received[0].source_qpn, a_.qpn);
    EXPECT_EQ(std::memcmp(end->memory() + 8192 + kGrh, a_.memory(), 100), 0);
    EXPECT_EQ(load_be32(end->memory() + 8192 + 20 + 16), kGroup.address.ipv4_value()) << "destination in the header";
  }
}

TEST_F(Multicast, OtherGroupsInterfacesAndThoseWhoHaveLeftGetNothing) {
  ASSERT_TRUE(b_.engine().attach_multicast(b_.qpn, {wire::IpAddress::ipv4(0xEF010204), kIfindex}));
  recv(b_, 200);
  send_to_group(10);
  EXPECT_EQ(b_.engine().counters().unknown_qp, 1u);
  ASSERT_TRUE(b_.engine().attach_multicast(b_.qpn, kGroup));
  send_to_group(10, kIfindex + 1);
  EXPECT_EQ(b_.engine().counters().unknown_qp, 2u);
  ASSERT_TRUE(b_.engine().detach_multicast(b_.qpn, kGroup));
  send_to_group(10);
  EXPECT_EQ(b_.engine().counters().unknown_qp, 3u);
  EXPECT_TRUE(b_.poll_recv().empty());
}

TEST_F(Multicast, RefusesWhatCannotBe) {
  EXPECT_EQ(b_.engine().attach_multicast(0x99, kGroup).error().code, EINVAL);
  EXPECT_EQ(b_.engine().attach_multicast(b_.qpn, {wire::IpAddress::ipv4(0x0A000001), kIfindex}).error().code, EINVAL);
  QpParams rc{.qpn = 0x40, .type = QpType::kRc, .pd = b_.pd, .send_cq = b_.send_cq, .recv_cq = b_.recv_cq};
  ASSERT_TRUE(b_.engine().create_qp(rc));
  EXPECT_EQ(b_.engine().attach_multicast(0x40, kGroup).error().code, EINVAL);
  EXPECT_EQ(b_.engine().detach_multicast(b_.qpn, kGroup).error().code, EINVAL);
  for (std::uint32_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(b_.engine().attach_multicast(b_.qpn, {wire::IpAddress::ipv4(0xEF020000 + i), kIfindex}));
  }
  EXPECT_EQ(b_.engine().attach_multicast(b_.qpn, kGroup).error().code, ENOMEM);
}

TEST_F(Multicast, AnAttachedQueuePairCannotBeDestroyed) {
  ASSERT_TRUE(b_.engine().attach_multicast(b_.qpn, kGroup));
  EXPECT_EQ(b_.engine().destroy_qp(0, b_.qpn).error().code, EBUSY);
  ASSERT_TRUE(b_.engine().detach_multicast(b_.qpn, kGroup));
  EXPECT_TRUE(b_.engine().destroy_qp(0, b_.qpn));
}

}  // namespace
}  // namespace ucm::roce::test
