// A channel, a device and the steps every connection takes, on a fake node.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>

#include "rdma/convert.h"
#include "unit/rdma/fake_node.h"
#include "unit/rdma/fake_verbs.h"

namespace ucm::test {

inline constexpr std::uint32_t kIfindex = 7;

inline sockaddr_in ipv4(const char* address, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  inet_pton(AF_INET, address, &out.sin_addr);
  return out;
}

inline sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

inline ipc::SocketAddress wire_address(const char* address, std::uint16_t port) {
  sockaddr_in in = ipv4(address, port);
  return *rdma::from_sockaddr(*generic(in));
}

class RdmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeNode::reset();
    FakeVerbs::instance().reset();
    FakeVerbs::instance().device_names = {"ucm_other", "ucm_test"};
    FakeVerbs::instance().gids = {ibv_gid{}, rdma::gid_of(wire_address("10.0.0.1", 0))};
    host::Device device;
    device.ifindex = kIfindex;
    device.interface_name = "test";
    node().devices = {device};
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr);
  }
  void TearDown() override {
    if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
  }

  FakeNode& node() { return FakeNode::instance(); }
  FakeVerbs& verbs() { return FakeVerbs::instance(); }
  FakeLink& link() { return node().link(0); }

  rdma_cm_id* make_id(rdma_port_space port_space = RDMA_PS_TCP) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel_, &id, this, port_space), 0);
    return id;
  }

  static ipc::CmPath path() {
    ipc::CmPath path;
    path.local = wire_address("10.0.0.1", 40000);
    path.remote = wire_address("10.0.0.2", 7174);
    path.ifindex = kIfindex;
    path.flow_label = 0x12345;
    path.mtu = 3;
    path.traffic_class = 32;
    path.hop_limit = 64;
    path.packet_lifetime = 16;
    return path;
  }

  static ipc::CmEvent make_event(ipc::CmEventType type, std::uint32_t id, int status = 0) {
    ipc::CmEvent event;
    event.type = type;
    event.id = id;
    event.status = status;
    event.path = path();
    return event;
  }

  static ipc::CmEvent response(std::uint32_t id) {
    ipc::CmEvent event = make_event(ipc::CmEventType::kConnectResponse, id);
    event.qp.dest_known = 1;
    event.qp.dest_qpn = 0xABC;
    event.qp.rq_psn = 0x111111;
    event.qp.sq_psn = 0x222222;
    event.qp.path_mtu = 3;
    event.qp.responder_resources = 4;
    event.qp.initiator_depth = 5;
    event.qp.retry_count = 6;
    event.qp.rnr_retry_count = 7;
    event.qp.ack_timeout = 17;
    event.conn.qp_num = 0xABC;
    event.conn.responder_resources = 4;
    event.conn.initiator_depth = 5;
    event.conn.private_data_size = 196;
    event.conn.private_data[0] = 0x5A;
    event.conn.private_data[195] = 0xA5;
    return event;
  }

  static ipc::CmEvent request(std::uint32_t listener, std::uint32_t id) {
    ipc::CmEvent event = response(id);
    event.type = ipc::CmEventType::kConnectRequest;
    event.listen_id = listener;
    event.conn.private_data_size = 56;
    return event;
  }

  // Takes the next event, checks its type, acknowledges it.
  void expect_event(rdma_cm_event_type type, rdma_cm_id* id, int status = 0) {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0) << std::strerror(errno);
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    EXPECT_EQ(event->id, id);
    EXPECT_EQ(event->status, status);
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
  }

  bool readable() {
    pollfd poller{channel_->fd, POLLIN, 0};
    return poll(&poller, 1, 0) == 1;
  }

  void set_nonblocking() { fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK); }

  // The node's number of an ID is the one of its last command.
  std::uint32_t handle_of(rdma_cm_id* id) {
    std::uint8_t tos = 0;
    EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), 0);
    return node().last(ipc::CmCall::kSetOption).id;
  }

  void resolve(rdma_cm_id* id) {
    sockaddr_in to = ipv4("10.0.0.2", 7174);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
    const std::uint32_t handle = node().last(ipc::CmCall::kResolveAddr).id;
    link().push(make_event(ipc::CmEventType::kAddrResolved, handle));
    expect_event(RDMA_CM_EVENT_ADDR_RESOLVED, id);
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    link().push(make_event(ipc::CmEventType::kRouteResolved, handle));
    expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED, id);
  }

  static ibv_qp_init_attr qp_attributes() {
    ibv_qp_init_attr attributes{};
    attributes.cap.max_send_wr = 16;
    attributes.cap.max_recv_wr = 8;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 1;
    attributes.qp_type = IBV_QPT_RC;
    return attributes;
  }

  rdma_event_channel* channel_ = nullptr;
};

}  // namespace ucm::test
