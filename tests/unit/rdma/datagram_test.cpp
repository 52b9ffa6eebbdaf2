// Datagram services: the QP at once, the peer from one answer, and what each event carries.
#include "unit/rdma/rdma_fixture.h"

namespace ucm::test {
namespace {

using ipc::CmCall;
using ipc::CmEventType;

using States = std::vector<ibv_qp_state>;

class DatagramTest : public RdmaTest {
 protected:
  static ibv_qp_init_attr datagram_qp_attributes() {
    ibv_qp_init_attr attributes = qp_attributes();
    attributes.qp_type = IBV_QPT_UD;
    return attributes;
  }
  rdma_cm_id* make_resolved_id() {
    rdma_cm_id* id = make_id(RDMA_PS_UDP);
    resolve(id);
    return id;
  }
  void create_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attributes = datagram_qp_attributes();
    ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0) << std::strerror(errno);
  }
  std::uint32_t connect(rdma_cm_id* id, rdma_conn_param* param = nullptr) {
    EXPECT_EQ(rdma_connect(id, param), 0) << std::strerror(errno);
    return node().last(CmCall::kConnect).id;
  }
  rdma_cm_id* make_listener() {
    rdma_cm_id* id = make_id(RDMA_PS_UDP);
    sockaddr_in at = ipv4("10.0.0.1", 7174);
    EXPECT_EQ(rdma_bind_addr(id, generic(at)), 0);
    EXPECT_EQ(rdma_listen(id, 8), 0);
    return id;
  }
  static ipc::CmEvent answer(std::uint32_t id) {
    ipc::CmEvent event = make_event(CmEventType::kEstablished, id);
    event.path = {};
    event.conn.qp_num = 0xABC;
    event.conn.qkey = RDMA_UDP_QKEY;
    event.conn.private_data_size = 136;
    event.conn.private_data[135] = 0xA5;
    return event;
  }
  // The caller acknowledges it.
  rdma_cm_event* next_event() {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0);
    return event;
  }
  rdma_cm_id* take_request(rdma_cm_id* listener, std::uint32_t handle) {
    ipc::CmEvent request = make_event(CmEventType::kConnectRequest, handle);
    request.listen_id = node().last(CmCall::kListen).id;
    request.conn.private_data_size = 180;
    request.conn.private_data[179] = 0x5A;
    link().push(request);
    rdma_cm_event* event = next_event();
    EXPECT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(event->listen_id, listener);
    EXPECT_EQ(event->param.ud.private_data_len, 180);
    EXPECT_EQ(static_cast<const std::uint8_t*>(event->param.ud.private_data)[179], 0x5A);
    EXPECT_EQ(event->param.ud.qp_num, 0U);
    EXPECT_EQ(event->param.ud.qkey, 0U);
    EXPECT_EQ(event->param.ud.ah_attr.is_global, 0);
    rdma_cm_id* id = event->id;
    rdma_ack_cm_event(event);
    return id;
  }
};

TEST_F(DatagramTest, AQpCanBeUsedAsSoonAsItIsThere) {
  rdma_cm_id* id = make_resolved_id();
  create_qp(id);
  EXPECT_EQ(verbs().states(), (States{IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  const auto transitions = verbs().transitions();
  EXPECT_EQ(transitions[0].mask, 0x71);
  EXPECT_EQ(transitions[0].attributes.qkey, 0x01234567U);
  EXPECT_EQ(transitions[0].attributes.port_num, 1);
  EXPECT_EQ(transitions[1].mask, IBV_QP_STATE);
  EXPECT_EQ(transitions[2].mask, IBV_QP_STATE | IBV_QP_SQ_PSN);
  EXPECT_EQ(transitions[2].attributes.sq_psn, 0U);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, AQpOfAnotherTypeThanTheIdsIsRefused) {
  rdma_cm_id* id = make_resolved_id();
  ibv_qp_init_attr attributes = qp_attributes();
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, AFailingTransitionLeavesNoQp) {
  rdma_cm_id* id = make_resolved_id();
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    verbs().on_modify = [state](const Transition& transition) {
      return transition.attributes.qp_state == state ? EINVAL : 0;
    };
    const int qps = verbs().qps;
    ibv_qp_init_attr attributes = datagram_qp_attributes();
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), -1);
    EXPECT_EQ(id->qp, nullptr);
    EXPECT_EQ(verbs().qps, qps);
  }
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, TheAnswerTellsAddressQpAndQkey) {
  rdma_cm_id* id = make_resolved_id();
  create_qp(id);
  const std::uint8_t data[] = {1, 2, 3};
  rdma_conn_param param{};
  param.private_data = data;
  param.private_data_len = sizeof(data);
  const std::uint32_t handle = connect(id, &param);
  const ipc::CmConnParam sent = node().last(CmCall::kConnect).conn;
  EXPECT_EQ(sent.qkey, 0x01234567U);
  EXPECT_EQ(sent.private_data_size, 3U);
  EXPECT_EQ(sent.private_data[2], 3);

  link().push(answer(handle));
  rdma_cm_event* event = next_event();
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
  const rdma_ud_param& ud = event->param.ud;
  EXPECT_EQ(ud.qp_num, 0xABCU);
  EXPECT_EQ(ud.qkey, 0x01234567U);
  ASSERT_EQ(ud.private_data_len, 136);
  EXPECT_EQ(static_cast<const std::uint8_t*>(ud.private_data)[135], 0xA5);
  EXPECT_EQ(ud.ah_attr.is_global, 1);
  EXPECT_EQ(ud.ah_attr.grh.dgid.raw[15], 2);
  EXPECT_EQ(ud.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(ud.ah_attr.grh.hop_limit, 64);
  EXPECT_EQ(ud.ah_attr.grh.flow_label, 0x12345U);
  EXPECT_EQ(ud.ah_attr.grh.traffic_class, 32);
  EXPECT_EQ(ud.ah_attr.port_num, 1);
  rdma_ack_cm_event(event);

  // There is no connection to end; the QP is not to be used any more.
  EXPECT_EQ(rdma_disconnect(id), 0);
  EXPECT_EQ(verbs().states().back(), IBV_QPS_ERR);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, WithoutAQpAnyQkeyIsWelcomeUntilItsAttributesAreAskedFor) {
  rdma_cm_id* id = make_resolved_id();
  connect(id);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.qkey, 0U);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  int mask = 0;
  ASSERT_EQ(rdma_init_qp_attr(id, &attributes, &mask), 0);
  EXPECT_EQ(mask, 0x71);
  EXPECT_EQ(attributes.qkey, 0x01234567U);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTR);
  connect(id);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.qkey, 0x01234567U);
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, RefusalsCarryStatusAndData) {
  rdma_cm_id* id = make_resolved_id();
  ipc::CmEvent refused = make_event(CmEventType::kUnreachable, connect(id), 2);
  refused.conn.private_data_size = 136;
  refused.conn.private_data[0] = 0x99;
  link().push(refused);
  rdma_cm_event* event = next_event();
  EXPECT_EQ(event->event, RDMA_CM_EVENT_UNREACHABLE);
  EXPECT_EQ(event->status, 2);
  ASSERT_EQ(event->param.ud.private_data_len, 136);
  EXPECT_EQ(static_cast<const std::uint8_t*>(event->param.ud.private_data)[0], 0x99);
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, AnAddressThatHasGoneMakesTheAnswerAnError) {
  rdma_cm_id* id = make_resolved_id();
  const std::uint32_t handle = connect(id);
  verbs().gids.clear();
  link().push(answer(handle));
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, id, -EADDRNOTAVAIL);
  rdma_destroy_id(id);
}

TEST_F(DatagramTest, ARequestIsAcceptedWithTheQpAndNothingFollows) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = take_request(listener, 900);
  EXPECT_EQ(id->qp_type, IBV_QPT_UD);
  EXPECT_EQ(id->ps, RDMA_PS_UDP);
  EXPECT_EQ(id->route.num_paths, 0);
  EXPECT_EQ(rdma_get_dst_port(id), htons(7174));
  create_qp(id);
  const std::size_t transitions = verbs().states().size();
  EXPECT_EQ(rdma_accept(id, nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(node().last(CmCall::kAccept).conn.qp_num, id->qp->qp_num);
  EXPECT_EQ(node().last(CmCall::kAccept).conn.qkey, 0x01234567U);
  EXPECT_EQ(verbs().states().size(), transitions);
  EXPECT_EQ(rdma_accept(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(readable());
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
  rdma_destroy_id(listener);
}

TEST_F(DatagramTest, TheProgramsOwnQpIsNamedInTheParameters) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = take_request(listener, 900);
  EXPECT_EQ(rdma_accept(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param param{};
  param.qp_num = 0x77;
  EXPECT_EQ(rdma_accept(id, &param), 0);
  EXPECT_EQ(node().last(CmCall::kAccept).conn.qp_num, 0x77U);
  rdma_destroy_id(id);
  rdma_destroy_id(listener);
}

TEST_F(DatagramTest, SynchronousCallsWaitForTheAnswerButNotAfterAccept) {
  FakeLink* listening = nullptr;
  node().answer = [&](FakeLink& at, const ipc::CmCommand& command) {
    switch (command.call) {
      case CmCall::kListen:
        listening = &at;
        break;
      case CmCall::kResolveAddr:
        at.push(make_event(CmEventType::kAddrResolved, command.id));
        break;
      case CmCall::kResolveRoute:
        at.push(make_event(CmEventType::kRouteResolved, command.id));
        break;
      case CmCall::kConnect:
        at.push(answer(command.id));
        break;
      default:
        break;
    }
    return node().success(command);
  };
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP), 0);
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  ASSERT_EQ(rdma_connect(id, nullptr), 0);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->param.ud.qp_num, 0xABCU);
  EXPECT_EQ(rdma_disconnect(id), 0);
  rdma_destroy_id(id);

  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP), 0);
  ASSERT_EQ(rdma_listen(id, 1), 0);
  ipc::CmEvent request = make_event(CmEventType::kConnectRequest, 900);
  request.listen_id = node().last(CmCall::kListen).id;
  listening->push(request);
  rdma_cm_id* child = nullptr;
  ASSERT_EQ(rdma_get_request(id, &child), 0) << std::strerror(errno);
  rdma_conn_param param{};
  EXPECT_EQ(rdma_accept(child, &param), 0);
  rdma_destroy_id(child);
  rdma_destroy_id(id);
  node().answer = nullptr;
}

TEST_F(DatagramTest, ALostNodeTakesTheDeviceOfAnAnsweredId) {
  rdma_cm_id* id = make_resolved_id();
  link().push(answer(connect(id)));
  expect_event(RDMA_CM_EVENT_ESTABLISHED, id);
  node().lose();
  expect_event(RDMA_CM_EVENT_DEVICE_REMOVAL, id, -ENETDOWN);
  rdma_destroy_id(id);
}

class Multicast : public DatagramTest {
 protected:
  void SetUp() override {
    DatagramTest::SetUp();
    id_ = make_resolved_id();
    create_qp(id_);
  }
  void TearDown() override {
    rdma_destroy_qp(id_);
    rdma_destroy_id(id_);
    DatagramTest::TearDown();
  }
  // The node's answer to the last join.
  rdma_cm_event* joined() {
    const ipc::CmCommand join = node().last(CmCall::kJoinMulticast);
    ipc::CmEvent event = make_event(CmEventType::kMulticastJoin, join.id);
    event.path.remote = join.destination;
    event.path.traffic_class = 0;
    event.path.flow_label = 0;
    event.multicast = join.multicast;
    link().push(event);
    return next_event();
  }

  rdma_cm_id* id_ = nullptr;
  sockaddr_in group_ = ipv4("239.1.2.3", 0);
  int context_ = 0;
};

TEST_F(Multicast, JoiningAttachesTheQpAndTellsWhereToSend) {
  ASSERT_EQ(rdma_join_multicast(id_, generic(group_), &context_), 0) << std::strerror(errno);
  EXPECT_TRUE(verbs().attachments.empty());
  rdma_cm_event* event = joined();
  EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(event->status, 0);
  EXPECT_EQ(event->id, id_);
  EXPECT_EQ(event->param.ud.private_data, &context_);
  EXPECT_EQ(event->param.ud.qp_num, 0xFFFFFFu);
  EXPECT_EQ(event->param.ud.qkey, 0x01234567u);
  const ibv_ah_attr& ah = event->param.ud.ah_attr;
  EXPECT_EQ(ah.is_global, 1);
  EXPECT_EQ(ah.grh.sgid_index, 1);
  EXPECT_EQ(ah.grh.hop_limit, 64);
  EXPECT_EQ(ah.dlid, 0);
  EXPECT_EQ(ah.port_num, 1);
  const ibv_gid group = rdma::gid_of(wire_address("239.1.2.3", 0));
  EXPECT_EQ(std::memcmp(&ah.grh.dgid, &group, sizeof group), 0);
  rdma_ack_cm_event(event);
  ASSERT_EQ(verbs().attachments.size(), 1u);
  EXPECT_EQ(verbs().attachments[0].qp_num, id_->qp->qp_num);
  EXPECT_EQ(std::memcmp(&verbs().attachments[0].group, &group, sizeof group), 0);

  EXPECT_EQ(rdma_leave_multicast(id_, generic(group_)), 0);
  EXPECT_TRUE(verbs().attachments.empty());
  EXPECT_EQ(rdma_leave_multicast(id_, generic(group_)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST_F(Multicast, ASenderIsNotAttached) {  // case 8.05
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.addr = generic(group_);
  attributes.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  ASSERT_EQ(rdma_join_multicast_ex(id_, &attributes, &context_), 0);
  rdma_cm_event* event = joined();
  EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  rdma_ack_cm_event(event);
  EXPECT_TRUE(verbs().attachments.empty());
  EXPECT_EQ(rdma_leave_multicast(id_, generic(group_)), 0);
}

TEST_F(Multicast, AQpThatCannotBeAttachedIsAnError) {
  verbs().attach_error = ENOMEM;
  ASSERT_EQ(rdma_join_multicast(id_, generic(group_), &context_), 0);
  rdma_cm_event* event = joined();
  EXPECT_EQ(event->event, RDMA_CM_EVENT_MULTICAST_ERROR);
  EXPECT_EQ(event->status, -1);
  EXPECT_EQ(event->param.ud.private_data, &context_);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_leave_multicast(id_, generic(group_)), 0);
}

TEST_F(Multicast, AGroupLeftBeforeItsEventWasReadIsNotTold) {
  ASSERT_EQ(rdma_join_multicast(id_, generic(group_), &context_), 0);
  const ipc::CmCommand join = node().last(CmCall::kJoinMulticast);
  EXPECT_EQ(rdma_leave_multicast(id_, generic(group_)), 0);
  ipc::CmEvent late = make_event(CmEventType::kMulticastJoin, join.id);
  late.multicast = join.multicast;
  link().push(late);
  sockaddr_in other = ipv4("239.1.2.4", 0);
  ASSERT_EQ(rdma_join_multicast(id_, generic(other), &other), 0);
  rdma_cm_event* event = joined();
  EXPECT_EQ(event->param.ud.private_data, &other);
  rdma_ack_cm_event(event);
  EXPECT_EQ(verbs().attachments.size(), 1u);
}

TEST_F(Multicast, DestroyingTheQpLeavesItsGroups) {
  ASSERT_EQ(rdma_join_multicast(id_, generic(group_), &context_), 0);
  rdma_ack_cm_event(joined());
  ASSERT_EQ(verbs().attachments.size(), 1u);
  rdma_destroy_qp(id_);
  EXPECT_TRUE(verbs().attachments.empty());
  EXPECT_EQ(rdma_leave_multicast(id_, generic(group_)), 0);
}

TEST_F(Multicast, RefusesWhatIsNoGroupOrUnknown) {
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_EQ(rdma_join_multicast(id_, &other, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_join_mc_attr_ex attributes{};
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  EXPECT_EQ(rdma_join_multicast_ex(id_, &attributes, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED | RDMA_CM_JOIN_MC_ATTR_ADDRESS;
  EXPECT_EQ(rdma_join_multicast_ex(id_, &attributes, nullptr), -1);
  EXPECT_EQ(errno, ENOTSUP);
  attributes.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attributes.addr = generic(group_);
  attributes.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
  EXPECT_EQ(rdma_join_multicast_ex(id_, &attributes, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace ucm::test
