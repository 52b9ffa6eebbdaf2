#include "kernel/kernel_link.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "ipc/socket_address.h"
#include "unit/kernel/fake_kernel.h"

namespace ucm::test {
namespace {

using ipc::CmCall;
using ipc::CmEventType;
using kernel::KernelLink;

ipc::SocketAddress address(const char* text, std::uint16_t port) {
  const sockaddr_in6 in = stored_address(text, port);
  return *ipc::from_sockaddr(reinterpret_cast<const sockaddr&>(in));
}

class KernelLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    FakeKernel::reset();
    kernel().route.node_guid = 0x0807060504030201;
    kernel().route.ibdev_index = 3;
    kernel().route.port_num = 2;
    kernel().route.src_addr = stored_address("10.0.0.1", 40000);
    kernel().route.dst_addr = stored_address("10.0.0.2", 7174);
    link_ = open();
  }

  static std::unique_ptr<KernelLink> open() {
    auto opened = KernelLink::open();
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(*opened);
  }

  FakeKernel& kernel() { return FakeKernel::instance(); }

  ipc::CmReply call(CmCall call, std::uint32_t id, ipc::CmCommand command = {}) {
    command.call = call;
    command.id = id;
    return link_->call(command);
  }

  std::uint32_t create(std::uint8_t qp_type = 2, std::uint16_t port_space = 0x0106) {
    ipc::CmCommand command;
    command.qp_type = qp_type;
    command.port_space = port_space;
    const ipc::CmReply reply = call(CmCall::kCreateId, 0, command);
    EXPECT_EQ(reply.error, 0);
    return reply.id;
  }

  rdma_ucm_event_resp event(CmEventType type, std::uint64_t uid, std::uint32_t kernel_id = 0) {
    rdma_ucm_event_resp response{};
    response.event = static_cast<std::uint32_t>(type);
    response.uid = uid;
    response.id = kernel_id;
    return response;
  }

  // The event that the next token stands for.
  ipc::CmEvent next(KernelLink& link) {
    ipc::CmEvent event;
    EXPECT_EQ(link.take_token(), 0);
    EXPECT_TRUE(link.poll_event(event));
    EXPECT_TRUE(link.arm());
    return event;
  }

  static bool readable(const KernelLink& link) {
    pollfd poller{link.poll_fd(), POLLIN, 0};
    return poll(&poller, 1, 0) == 1;
  }
  static void make_nonblocking(const KernelLink& link) { fcntl(link.poll_fd(), F_SETFL, O_NONBLOCK); }

  std::unique_ptr<KernelLink> link_;
};

// Every byte in its place: the kernel will not ask what was meant.
TEST_F(KernelLinkTest, CreateIdIsWrittenAsTheAbiSays) {
  const std::uint32_t id = create();
  auto bytes = kernel().last(RDMA_USER_CM_CMD_CREATE_ID).bytes;
  ASSERT_EQ(bytes.size(), 32u);
  std::fill_n(bytes.begin() + 16, 8, 0);  // the place of the answer
  const std::vector<std::uint8_t> expected{0,
                                           0,
                                           0,
                                           0,
                                           24,
                                           0,
                                           4,
                                           0,  // CREATE_ID, sizes in and out
                                           std::uint8_t(id),
                                           std::uint8_t(id >> 8),
                                           std::uint8_t(id >> 16),
                                           std::uint8_t(id >> 24),
                                           0,
                                           0,
                                           0,
                                           0,  // label
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0,  // answer
                                           0x06,
                                           0x01,
                                           2,
                                           0,
                                           0,
                                           0,
                                           0,
                                           0};  // RDMA_PS_TCP, RC
  EXPECT_EQ(bytes, expected);
}

TEST_F(KernelLinkTest, CommandsHaveTheSizesOfTheAbi) {
  const std::uint32_t id = create();
  for (const CmCall kind : {CmCall::kBindAddr, CmCall::kResolveAddr, CmCall::kResolveRoute, CmCall::kListen,
                            CmCall::kConnect, CmCall::kAccept, CmCall::kReject, CmCall::kEstablish, CmCall::kNotify,
                            CmCall::kDisconnect, CmCall::kSetOption, CmCall::kJoinMulticast, CmCall::kDestroyId}) {
    EXPECT_EQ(call(kind, id).error, 0) << static_cast<int>(kind);
  }
  const std::vector<std::pair<std::uint32_t, std::size_t>> sizes{
      {RDMA_USER_CM_CMD_BIND, 136},       {RDMA_USER_CM_CMD_RESOLVE_ADDR, 272}, {RDMA_USER_CM_CMD_RESOLVE_ROUTE, 8},
      {RDMA_USER_CM_CMD_QUERY_ROUTE, 16}, {RDMA_USER_CM_CMD_LISTEN, 8},         {RDMA_USER_CM_CMD_CONNECT, 288},
      {RDMA_USER_CM_CMD_ACCEPT, 296},     {RDMA_USER_CM_CMD_REJECT, 264},       {RDMA_USER_CM_CMD_NOTIFY, 8},
      {RDMA_USER_CM_CMD_DISCONNECT, 4},   {RDMA_USER_CM_CMD_SET_OPTION, 24},    {RDMA_USER_CM_CMD_JOIN_MCAST, 152},
      {RDMA_USER_CM_CMD_DESTROY_ID, 16}};
  for (const auto& [command, size] : sizes) {
    const auto bytes = kernel().last(command).bytes;
    EXPECT_EQ(bytes.size(), 8 + size) << "command " << command;
    EXPECT_EQ(bytes.at(4) | bytes.at(5) << 8, size) << "command " << command;
  }
}

TEST_F(KernelLinkTest, BoundAddressAndDeviceAreTold) {
  const std::uint32_t id = create();
  ipc::CmCommand bind;
  bind.source = address("10.0.0.1", 7174);
  const ipc::CmReply reply = call(CmCall::kBindAddr, id, bind);
  const auto body = kernel().last_body<rdma_ucm_bind>(RDMA_USER_CM_CMD_BIND);
  EXPECT_EQ(body.addr_size, sizeof(sockaddr_in));
  const sockaddr_in6 wanted = stored_address("10.0.0.1", 7174);
  EXPECT_EQ(std::memcmp(&body.addr, &wanted, sizeof(sockaddr_in)), 0);
  EXPECT_EQ(reply.local.port, 40000);  // what the kernel says, whatever was asked for
  EXPECT_EQ(reply.device.index, 3u);
  EXPECT_EQ(reply.device.port, 2);
  EXPECT_EQ(reply.device.guid[0], 1);
}

TEST_F(KernelLinkTest, AnOlderKernelTellsNoDeviceIndex) {
  kernel().route_size = offsetof(rdma_ucm_query_route_resp, ibdev_index);
  EXPECT_EQ(call(CmCall::kBindAddr, create()).device.index, ipc::kUnknownDeviceIndex);
}

TEST_F(KernelLinkTest, ConnectionParametersAreWritten) {
  const std::uint32_t id = create();
  ipc::CmCommand connect;
  connect.conn.qp_num = 0x123456;
  connect.conn.srq = 1;
  connect.conn.responder_resources = 3;
  connect.conn.initiator_depth = 4;
  connect.conn.flow_control = 1;
  connect.conn.retry_count = 6;
  connect.conn.rnr_retry_count = 7;
  connect.conn.ece_vendor_id = 0x15B3;
  connect.conn.ece_options = 9;
  connect.conn.private_data_size = 200;
  connect.conn.private_data[0] = 0x5A;
  connect.conn.private_data[199] = 0xA5;
  EXPECT_EQ(call(CmCall::kConnect, id, connect).error, 0);
  const auto body = kernel().last_body<rdma_ucm_connect>(RDMA_USER_CM_CMD_CONNECT);
  EXPECT_EQ(body.conn_param.qp_num, 0x123456u);
  EXPECT_EQ(body.conn_param.srq, 1);
  EXPECT_EQ(body.conn_param.responder_resources, 3);
  EXPECT_EQ(body.conn_param.initiator_depth, 4);
  EXPECT_EQ(body.conn_param.flow_control, 1);
  EXPECT_EQ(body.conn_param.retry_count, 6);
  EXPECT_EQ(body.conn_param.rnr_retry_count, 7);
  EXPECT_EQ(body.conn_param.valid, 1);
  EXPECT_EQ(body.conn_param.private_data_len, 200);
  EXPECT_EQ(body.conn_param.private_data[0], 0x5A);
  EXPECT_EQ(body.conn_param.private_data[199], 0xA5);
  EXPECT_EQ(body.ece.vendor_id, 0x15B3u);
  EXPECT_EQ(body.ece.attr_mod, 9u);
}

TEST_F(KernelLinkTest, AcceptLabelsTheIdAndEstablishHasNoParameters) {
  const std::uint32_t id = create();
  call(CmCall::kAccept, id);
  EXPECT_EQ(kernel().last_body<rdma_ucm_accept>(RDMA_USER_CM_CMD_ACCEPT).uid, id);
  EXPECT_EQ(kernel().last_body<rdma_ucm_accept>(RDMA_USER_CM_CMD_ACCEPT).conn_param.valid, 1);
  call(CmCall::kEstablish, id);
  EXPECT_EQ(kernel().last_body<rdma_ucm_accept>(RDMA_USER_CM_CMD_ACCEPT).conn_param.valid, 0);
}

TEST_F(KernelLinkTest, TheKernelsErrorIsTheReplys) {
  const std::uint32_t id = create();
  kernel().errors[RDMA_USER_CM_CMD_LISTEN] = EADDRINUSE;
  EXPECT_EQ(call(CmCall::kListen, id).error, EADDRINUSE);
  EXPECT_EQ(call(CmCall::kListen, id + 1).error, ENOENT);
}

TEST_F(KernelLinkTest, AResolvedRouteIsRead) {
  const std::uint32_t id = create();
  ib_user_path_rec& record = kernel().route.ib_route[0];
  record.sgid[15] = 1;
  record.dgid[15] = 2;
  record.slid = htons(0x11);
  record.dlid = htons(0x12);
  record.flow_label = htonl(0x12345);
  record.pkey = htons(0x8001);
  record.mtu = 4;
  record.hop_limit = 64;
  record.traffic_class = 8;
  record.sl = 5;
  record.rate = 3;
  record.packet_life_time = 18;
  kernel().push(0, event(CmEventType::kRouteResolved, id));
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.type, CmEventType::kRouteResolved);
  EXPECT_EQ(told.id, id);
  EXPECT_EQ(told.path.local.port, 40000);
  EXPECT_EQ(told.path.remote.port, 7174);
  EXPECT_EQ(told.device.sgid[15], 1);
  EXPECT_EQ(told.device.dgid[15], 2);
  EXPECT_EQ(told.device.slid, 0x11);
  EXPECT_EQ(told.device.dlid, 0x12);
  EXPECT_EQ(told.path.flow_label, 0x12345u);
  EXPECT_EQ(told.path.pkey, 0x8001);
  EXPECT_EQ(told.path.mtu, 4);
  EXPECT_EQ(told.path.hop_limit, 64);
  EXPECT_EQ(told.path.traffic_class, 8);
  EXPECT_EQ(told.path.sl, 5);
  EXPECT_EQ(told.path.rate, 3);
  EXPECT_EQ(told.path.packet_lifetime, 18);
}

TEST_F(KernelLinkTest, ARouteThatCannotBeAskedForIsAnError) {
  const std::uint32_t id = create();
  kernel().errors[RDMA_USER_CM_CMD_QUERY_ROUTE] = ENODEV;
  kernel().push(0, event(CmEventType::kAddrResolved, id));
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.type, CmEventType::kAddrError);
  EXPECT_EQ(told.status, -ENODEV);
}

TEST_F(KernelLinkTest, ADatagramAnswerNamesThePeer) {
  const std::uint32_t id = create(4, RDMA_PS_UDP);
  auto response = event(CmEventType::kEstablished, id);
  response.param.ud.qp_num = 0x77;
  response.param.ud.qkey = 0x01234567;
  response.param.ud.ah_attr.grh.dgid[15] = 2;
  response.param.ud.ah_attr.grh.sgid_index = 1;
  response.param.ud.ah_attr.dlid = 0x12;
  response.param.ud.ah_attr.is_global = 1;
  response.param.ud.ah_attr.port_num = 2;
  response.param.ud.private_data_len = 3;
  response.param.ud.private_data[2] = 9;
  kernel().push(0, response);
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.conn.qp_num, 0x77u);
  EXPECT_EQ(told.conn.qkey, 0x01234567u);
  EXPECT_EQ(told.conn.private_data_size, 3u);
  EXPECT_EQ(told.conn.private_data[2], 9);
  EXPECT_EQ(told.device.dgid[15], 2);
  EXPECT_EQ(told.device.sgid_index, 1);
  EXPECT_EQ(told.device.dlid, 0x12);
  EXPECT_EQ(told.device.is_global, 1);
  EXPECT_EQ(told.device.port, 2);
}

TEST_F(KernelLinkTest, PrivateDataLongerThanAnyMessageIsCut) {
  const std::uint32_t id = create();
  auto response = event(CmEventType::kRejected, id);
  response.status = 28;
  response.param.conn.private_data_len = 255;
  kernel().push(0, response);
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.status, 28);
  EXPECT_EQ(told.conn.private_data_size, told.conn.private_data.size());
}

TEST_F(KernelLinkTest, ARequestIsANewId) {
  const std::uint32_t listener = create();
  auto response = event(CmEventType::kConnectRequest, listener, 55);
  response.param.conn.qp_num = 0x88;
  response.param.conn.responder_resources = 3;
  response.param.conn.initiator_depth = 4;
  response.ece = {.vendor_id = 0x15B3, .attr_mod = 2};
  kernel().push(0, response);
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.listen_id, listener);
  EXPECT_NE(told.id, listener);
  EXPECT_EQ(told.conn.qp_num, 0x88u);
  EXPECT_EQ(told.conn.ece_vendor_id, 0x15B3u);
  EXPECT_EQ(told.qp.responder_resources, 3);
  EXPECT_EQ(told.qp.initiator_depth, 4);
  EXPECT_EQ(told.device.index, 3u);
  EXPECT_EQ(call(CmCall::kRequestTaken, told.id).error, 0);
  call(CmCall::kReject, told.id);
  EXPECT_EQ(kernel().last_body<rdma_ucm_reject>(RDMA_USER_CM_CMD_REJECT).id, 55u);
}

TEST_F(KernelLinkTest, RequestsThatNobodyHasReadGoWithTheirListener) {
  const std::uint32_t listener = create();
  kernel().push(0, event(CmEventType::kConnectRequest, listener, 55));
  kernel().push(0, event(CmEventType::kConnectRequest, listener, 56));
  const ipc::CmEvent taken = next(*link_);
  const ipc::CmEvent untaken = next(*link_);
  call(CmCall::kRequestTaken, taken.id);
  call(CmCall::kDestroyId, listener);
  EXPECT_EQ(kernel().last_body<rdma_ucm_destroy_id>(RDMA_USER_CM_CMD_DESTROY_ID).id, 56u);
  EXPECT_EQ(kernel().count(RDMA_USER_CM_CMD_DESTROY_ID), 2u);
  EXPECT_EQ(call(CmCall::kRequestTaken, untaken.id).error, ENOENT);
  EXPECT_EQ(call(CmCall::kAccept, taken.id).error, 0);
}

TEST_F(KernelLinkTest, EventsOfDestroyedIdsAreDropped) {
  make_nonblocking(*link_);
  const std::uint32_t id = create();
  call(CmCall::kDestroyId, id);
  kernel().push(0, event(CmEventType::kDisconnected, id));
  EXPECT_EQ(link_->take_token(), EAGAIN);
  EXPECT_FALSE(readable(*link_));
}

TEST_F(KernelLinkTest, ALateRequestOfADestroyedListenerIsDestroyedToo) {
  make_nonblocking(*link_);
  const std::uint32_t id = create();
  call(CmCall::kDestroyId, id);
  kernel().push(0, event(CmEventType::kConnectRequest, id, 55));
  EXPECT_EQ(link_->take_token(), EAGAIN);
  EXPECT_EQ(kernel().last_body<rdma_ucm_destroy_id>(RDMA_USER_CM_CMD_DESTROY_ID).id, 55u);
}

TEST_F(KernelLinkTest, TheDescriptorIsReadableWhileEventsWait) {
  const std::uint32_t id = create();
  EXPECT_FALSE(readable(*link_));
  kernel().push(0, event(CmEventType::kDisconnected, id));
  kernel().push(0, event(CmEventType::kTimewaitExit, id));
  EXPECT_TRUE(readable(*link_));
  EXPECT_EQ(next(*link_).type, CmEventType::kDisconnected);
  EXPECT_TRUE(readable(*link_));
  EXPECT_EQ(next(*link_).type, CmEventType::kTimewaitExit);
  EXPECT_FALSE(readable(*link_));
}

// A channel looks for events without waiting when an ID is destroyed or moves.
TEST_F(KernelLinkTest, AnEventThatWasTakenWithoutWaitingLeavesItsToken) {
  const std::uint32_t id = create();
  kernel().push(0, event(CmEventType::kDisconnected, id));
  ipc::CmEvent told;
  EXPECT_TRUE(link_->poll_event(told));
  EXPECT_FALSE(link_->poll_event(told));
  EXPECT_TRUE(readable(*link_));
  EXPECT_EQ(link_->take_token(), 0);
  EXPECT_FALSE(readable(*link_));
}

TEST_F(KernelLinkTest, AThreadWaitsForAnEvent) {
  const std::uint32_t id = create();
  ipc::CmEvent told;
  std::thread waiting([&] { told = next(*link_); });
  kernel().push(0, event(CmEventType::kDisconnected, id));
  waiting.join();
  EXPECT_EQ(told.type, CmEventType::kDisconnected);
}

TEST_F(KernelLinkTest, WaitingEndsWhenTheKernelFails) {
  kernel().errors[RDMA_USER_CM_CMD_GET_EVENT] = EIO;
  EXPECT_EQ(link_->take_token(), EIO);
}

TEST_F(KernelLinkTest, AnIdMovesWithItsNameToAnotherLink) {
  const std::uint32_t id = create();
  const auto other = open();
  ASSERT_TRUE(other->adopt(id, *link_));
  EXPECT_EQ(kernel().last(RDMA_USER_CM_CMD_MIGRATE_ID).file, 1u);
  EXPECT_EQ(kernel().last_body<rdma_ucm_migrate_id>(RDMA_USER_CM_CMD_MIGRATE_ID).id, 0u);
  kernel().push(1, event(CmEventType::kDisconnected, id));
  EXPECT_EQ(next(*other).id, id);
  EXPECT_EQ(call(CmCall::kListen, id).error, ENOENT);
}

TEST_F(KernelLinkTest, QpAttributesAreTheKernels) {
  const std::uint32_t id = create();
  kernel().qp_attributes.qp_attr_mask = 0x12379;
  kernel().qp_attributes.dest_qp_num = 0xABC;
  const auto told = link_->qp_attributes(id, 2);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->qp_attr_mask, 0x12379u);
  EXPECT_EQ(told->dest_qp_num, 0xABCu);
  EXPECT_EQ(kernel().last_body<rdma_ucm_init_qp_attr>(RDMA_USER_CM_CMD_INIT_QP_ATTR).qp_state, 2u);
}

TEST_F(KernelLinkTest, OptionsHaveTheSizesOfTheirTypes) {
  const std::uint32_t id = create();
  const auto size_of = [&](ipc::CmOption option) {
    ipc::CmCommand set;
    set.option = option;
    set.option_value = 1;
    EXPECT_EQ(call(CmCall::kSetOption, id, set).error, 0);
    const auto body = kernel().last_body<rdma_ucm_set_option>(RDMA_USER_CM_CMD_SET_OPTION);
    EXPECT_EQ(body.optname, static_cast<std::uint32_t>(option));
    return body.optlen;
  };
  EXPECT_EQ(size_of(ipc::CmOption::kTos), 1u);
  EXPECT_EQ(size_of(ipc::CmOption::kAckTimeout), 1u);
  EXPECT_EQ(size_of(ipc::CmOption::kReuseAddr), 4u);
  EXPECT_EQ(size_of(ipc::CmOption::kAfOnly), 4u);
}

TEST_F(KernelLinkTest, AGroupIsJoinedAndLeft) {
  const std::uint32_t id = create(4, RDMA_PS_UDP);
  ipc::CmCommand join;
  join.destination = address("239.1.1.1", 0);
  join.multicast = 5;
  join.option_value = 1;
  EXPECT_EQ(call(CmCall::kJoinMulticast, id, join).error, 0);
  const auto body = kernel().last_body<rdma_ucm_join_mcast>(RDMA_USER_CM_CMD_JOIN_MCAST);
  EXPECT_EQ(body.join_flags, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
  kernel().push(0, event(CmEventType::kMulticastJoin, body.uid, 1));
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.id, id);
  EXPECT_EQ(told.multicast, 5u);
  EXPECT_FALSE(link_->leave_multicast(id, 6));
  EXPECT_TRUE(link_->leave_multicast(id, 5));
  EXPECT_EQ(kernel().last_body<rdma_ucm_destroy_id>(RDMA_USER_CM_CMD_LEAVE_MCAST).id, 1u);
}

TEST_F(KernelLinkTest, AFailedJoinIsAJoinWithAStatus) {
  const std::uint32_t id = create(4, RDMA_PS_UDP);
  auto response = event(static_cast<CmEventType>(13), std::uint64_t{5} << 32 | id);
  response.status = static_cast<std::uint32_t>(-EINVAL);
  kernel().push(0, response);
  const ipc::CmEvent told = next(*link_);
  EXPECT_EQ(told.type, CmEventType::kMulticastJoin);
  EXPECT_EQ(told.status, -EINVAL);
}

// setuid() and the like: the kernel refuses a descriptor to other credentials than it was opened with.
TEST_F(KernelLinkTest, ChangedCredentialsMoveEveryIdToANewDescriptor) {
  const std::uint32_t first = create();
  const std::uint32_t second = create();
  kernel().credentials = 1;
  EXPECT_EQ(call(CmCall::kListen, first).error, 0);
  EXPECT_EQ(kernel().last(RDMA_USER_CM_CMD_LISTEN).file, 1u);
  EXPECT_EQ(kernel().count(RDMA_USER_CM_CMD_MIGRATE_ID), 2u);
  EXPECT_EQ(kernel().files_open(), 1u);
  kernel().push(1, event(CmEventType::kDisconnected, second));
  EXPECT_TRUE(readable(*link_));
  EXPECT_EQ(next(*link_).id, second);
}

TEST_F(KernelLinkTest, AWaitingThreadGoesOnWithChangedCredentials) {
  make_nonblocking(*link_);
  const std::uint32_t id = create();
  kernel().credentials = 1;
  EXPECT_EQ(link_->take_token(), EAGAIN);
  kernel().push(1, event(CmEventType::kDisconnected, id));
  EXPECT_EQ(next(*link_).id, id);
}

TEST_F(KernelLinkTest, ARefusedPortIsNoChangeOfCredentials) {
  const std::uint32_t id = create();
  kernel().errors[RDMA_USER_CM_CMD_BIND] = EACCES;
  EXPECT_EQ(call(CmCall::kBindAddr, id).error, EACCES);
  EXPECT_EQ(kernel().count(RDMA_USER_CM_CMD_MIGRATE_ID), 0u);
}

TEST_F(KernelLinkTest, WithoutRdmaCmThereIsNoLink) {
  kernel().present = false;
  const auto opened = KernelLink::open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ENODEV);
}

}  // namespace
}  // namespace ucm::test
