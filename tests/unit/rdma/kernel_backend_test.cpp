// The C entry points where the kernel's rdma_cm makes the connections, on a fake kernel and a fake verbs library.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "unit/rdma/fake_verbs.h"
#include "unit/rdma/scripted_kernel.h"

namespace ucm::test {
namespace {

const int kEnvironment = setenv("UCM_DEVICE", "verbs", 1);

sockaddr_in ipv4(const char* address, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  inet_pton(AF_INET, address, &out.sin_addr);
  return out;
}

class KernelBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(kEnvironment, 0);
    FakeVerbs::instance().reset();
    FakeVerbs::instance().device_names = {"mlx_0", "rxe0"};
    kernel_.reset();
    channel_ = rdma_create_event_channel();
    ASSERT_NE(channel_, nullptr);
  }
  void TearDown() override { rdma_destroy_event_channel(channel_); }

  rdma_cm_id* make_id(rdma_port_space port_space = RDMA_PS_TCP) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel_, &id, nullptr, port_space), 0);
    return id;
  }

  rdma_cm_event* next(rdma_cm_event_type type) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0);
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    return event;
  }

  void resolve(rdma_cm_id* id) {
    sockaddr_in to = ipv4("10.0.0.2", 7174);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
    kernel_.tell(kAddressResolved);
    rdma_ack_cm_event(next(RDMA_CM_EVENT_ADDR_RESOLVED));
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    kernel_.tell(kRouteResolved);
    rdma_ack_cm_event(next(RDMA_CM_EVENT_ROUTE_RESOLVED));
  }

  void create_qp(rdma_cm_id* id, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr attributes{};
    attributes.cap.max_send_wr = 4;
    attributes.cap.max_recv_wr = 4;
    attributes.qp_type = type;
    ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
  }

  ScriptedKernel kernel_;
  rdma_event_channel* channel_ = nullptr;
};

TEST_F(KernelBackend, DeviceAndRouteAreTheKernels) {
  rdma_cm_id* id = make_id();
  resolve(id);
  ASSERT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 2);
  EXPECT_EQ(id->route.addr.addr.ibaddr.sgid.raw[15], 1);
  EXPECT_EQ(id->route.addr.addr.ibaddr.dgid.raw[15], 2);
  ASSERT_EQ(id->route.num_paths, 1);
  EXPECT_EQ(ntohs(id->route.path_rec->dlid), 0x12);
  EXPECT_EQ(ntohs(rdma_get_dst_port(id)), 7174);
  rdma_destroy_id(id);
}

TEST_F(KernelBackend, AnUnknownDeviceIsAnAddressError) {
  FakeVerbs::instance().device_names = {"mlx_0", "rxe0"};
  kernel_.set_device_index(17);
  rdma_cm_id* id = make_id();
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000), 0);
  kernel_.tell(kAddressResolved);
  rdma_cm_event* event = next(RDMA_CM_EVENT_ADDR_ERROR);
  EXPECT_EQ(event->status, -ENODEV);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
}

TEST_F(KernelBackend, TheQpGetsTheKernelsAttributes) {
  rdma_cm_id* id = make_id();
  resolve(id);
  create_qp(id);
  rdma_conn_param param{};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  kernel_.tell(kConnectResponse);
  rdma_cm_event* event = next(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(event->param.conn.private_data_len, 4);
  rdma_ack_cm_event(event);
  const auto transitions = FakeVerbs::instance().transitions();
  ASSERT_EQ(transitions.size(), 4u);  // INIT when created, then INIT, RTR, RTS
  EXPECT_EQ(transitions[2].attributes.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(transitions[2].attributes.dest_qp_num, 0xABCu);
  EXPECT_EQ(transitions[2].attributes.ah_attr.dlid, 0x12);
  EXPECT_EQ(transitions[2].attributes.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(transitions[2].attributes.max_dest_rd_atomic, 9);
  EXPECT_EQ(transitions[2].mask, 0x12379);
  EXPECT_TRUE(kernel_.established());
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(KernelBackend, AnAcceptedQpHasTheDepthsOfRdmaAccept) {
  rdma_cm_id* listener = make_id();
  sockaddr_in here = ipv4("10.0.0.1", 7174);
  ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&here)), 0);
  ASSERT_EQ(rdma_listen(listener, 4), 0);
  kernel_.tell(kConnectRequest);
  rdma_cm_event* event = next(RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* child = event->id;
  EXPECT_EQ(event->listen_id, listener);
  rdma_ack_cm_event(event);
  create_qp(child);
  rdma_conn_param param{};
  param.responder_resources = 2;
  param.initiator_depth = 3;
  ASSERT_EQ(rdma_accept(child, &param), 0);
  const auto transitions = FakeVerbs::instance().transitions();
  EXPECT_EQ(transitions[2].attributes.max_dest_rd_atomic, 2);
  EXPECT_EQ(transitions[3].attributes.max_rd_atomic, 3);
  rdma_destroy_qp(child);
  rdma_destroy_id(child);
  rdma_destroy_id(listener);
}

TEST_F(KernelBackend, ADatagramServiceIsWhereTheKernelSays) {
  rdma_cm_id* id = make_id(RDMA_PS_UDP);
  resolve(id);
  create_qp(id, IBV_QPT_UD);
  rdma_conn_param param{};
  ASSERT_EQ(rdma_connect(id, &param), 0);
  kernel_.tell(kDatagramAnswer);
  rdma_cm_event* event = next(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(event->param.ud.qp_num, 0x77u);
  EXPECT_EQ(event->param.ud.ah_attr.dlid, 0x12);
  EXPECT_EQ(event->param.ud.ah_attr.grh.dgid.raw[15], 2);
  EXPECT_EQ(event->param.ud.ah_attr.port_num, 2);
  rdma_ack_cm_event(event);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(KernelBackend, TheQpIsAttachedToTheGroupThatTheKernelNames) {
  rdma_cm_id* id = make_id(RDMA_PS_UDP);
  resolve(id);
  create_qp(id, IBV_QPT_UD);
  sockaddr_in group = ipv4("239.1.1.1", 0);
  ASSERT_EQ(rdma_join_multicast(id, reinterpret_cast<sockaddr*>(&group), id), 0);
  kernel_.tell(kGroupJoined);
  rdma_cm_event* event = next(RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(event->param.ud.private_data, id);
  EXPECT_EQ(event->param.ud.qp_num, 0xFFFFFFu);
  rdma_ack_cm_event(event);
  ASSERT_EQ(FakeVerbs::instance().attachments.size(), 1u);
  EXPECT_EQ(FakeVerbs::instance().attachments[0].group.raw[15], 2);
  EXPECT_EQ(rdma_leave_multicast(id, reinterpret_cast<sockaddr*>(&group)), 0);
  EXPECT_TRUE(FakeVerbs::instance().attachments.empty());
  EXPECT_TRUE(kernel_.left_group());
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(KernelBackend, AGroupThatTheKernelCannotJoinIsAnError) {
  rdma_cm_id* id = make_id(RDMA_PS_UDP);
  resolve(id);
  create_qp(id, IBV_QPT_UD);
  sockaddr_in group = ipv4("239.1.1.1", 0);
  ASSERT_EQ(rdma_join_multicast(id, reinterpret_cast<sockaddr*>(&group), id), 0);
  kernel_.tell(kGroupRefused);
  rdma_ack_cm_event(next(RDMA_CM_EVENT_MULTICAST_ERROR));
  EXPECT_TRUE(FakeVerbs::instance().attachments.empty());
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(KernelBackend, AnIdMovesWithTheEventsThatWait) {
  rdma_cm_id* id = make_id();
  resolve(id);
  rdma_event_channel* other = rdma_create_event_channel();
  ASSERT_NE(other, nullptr);
  kernel_.tell(kTimewaitExit);
  ASSERT_EQ(rdma_migrate_id(id, other), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(other, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(other);
}

TEST_F(KernelBackend, EveryDeviceIsListed) {
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  ASSERT_NE(devices, nullptr);
  EXPECT_EQ(count, 2);
  rdma_free_devices(devices);
}

}  // namespace
}  // namespace ucm::test
