// Connections: QP transitions, parameters, requests, synchronous calls and their errors.
#include <atomic>
#include <thread>

#include "unit/rdma/rdma_fixture.h"

namespace ucm::test {
namespace {

using ipc::CmCall;
using ipc::CmEventType;

using States = std::vector<ibv_qp_state>;

class ConnectionTest : public RdmaTest {
 protected:
  std::uint32_t connect(rdma_cm_id* id, rdma_conn_param* param = nullptr) {
    EXPECT_EQ(rdma_connect(id, param), 0) << std::strerror(errno);
    return node().last(CmCall::kConnect).id;
  }

  rdma_cm_id* make_connecting_id_with_qp() {
    rdma_cm_id* id = make_id();
    resolve(id);
    ibv_qp_init_attr attributes = qp_attributes();
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
    connect(id);
    return id;
  }

  rdma_cm_id* make_listener() {
    rdma_cm_id* id = make_id();
    sockaddr_in at = ipv4("10.0.0.1", 7174);
    EXPECT_EQ(rdma_bind_addr(id, generic(at)), 0);
    EXPECT_EQ(rdma_listen(id, 8), 0);
    return id;
  }

  // Delivers a request on the listener and returns the new ID.
  rdma_cm_id* take_request(rdma_cm_id* listener, std::uint32_t handle) {
    link().push(request(node().last(CmCall::kListen).id, handle));
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(event->listen_id, listener);
    EXPECT_EQ(event->param.conn.private_data_len, 56);
    rdma_cm_id* id = event->id;
    rdma_ack_cm_event(event);
    return id;
  }
};

TEST_F(ConnectionTest, APeersAddressIsUnspecifiedUntilThereIsOne) {
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    ipc::CmReply reply = node().success(command);
    if (command.call == CmCall::kBindAddr) reply.local = command.source;
    if (command.call == CmCall::kResolveAddr) reply.error = ENETUNREACH;
    return reply;
  };
  rdma_cm_id* id = make_id();
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), -1);
  EXPECT_EQ(errno, ENETUNREACH);
  EXPECT_EQ(rdma_get_peer_addr(id)->sa_family, 0);
  sockaddr_in at = ipv4("10.0.0.1", 7174);
  EXPECT_EQ(rdma_bind_addr(id, generic(at)), 0);
  EXPECT_EQ(rdma_get_peer_addr(id)->sa_family, AF_INET);
  EXPECT_EQ(rdma_get_dst_port(id), 0);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, ResolutionFillsThePublicFields) {
  rdma_cm_id* id = make_id();
  EXPECT_EQ(id->verbs, nullptr);
  EXPECT_EQ(id->qp_type, IBV_QPT_RC);
  EXPECT_EQ(id->context, this);
  resolve(id);
  ASSERT_NE(id->verbs, nullptr);
  EXPECT_NE(id->pd, nullptr);
  EXPECT_EQ(id->port_num, 1);
  EXPECT_EQ(id->route.num_paths, 1);
  EXPECT_EQ(rdma_get_src_port(id), htons(40000));
  EXPECT_EQ(rdma_get_dst_port(id), htons(7174));
  EXPECT_EQ(id->route.addr.addr.ibaddr.sgid.raw[15], 1);
  EXPECT_EQ(id->route.addr.addr.ibaddr.dgid.raw[15], 2);
  EXPECT_EQ(id->route.path_rec->mtu, 3);
  EXPECT_EQ(id->route.path_rec->hop_limit, 64);
  EXPECT_EQ(id->route.path_rec->pkey, htons(0xFFFF));
  EXPECT_EQ(id->route.path_rec->packet_life_time, 16);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, AddressOnUnknownDeviceBecomesAddrErrorEnodev) {
  rdma_cm_id* id = make_id();
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  ipc::CmEvent event = make_event(CmEventType::kAddrResolved, node().last(CmCall::kResolveAddr).id);
  event.path.ifindex = 99;
  link().push(event);
  expect_event(RDMA_CM_EVENT_ADDR_ERROR, id, -ENODEV);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, ActiveQpReachesRtsBeforeRtuLeavesAndTheProgramSeesEstablished) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  EXPECT_EQ(verbs().states(), States{IBV_QPS_INIT});
  EXPECT_EQ(verbs().transitions()[0].attributes.qp_access_flags, 0U);
  std::size_t transitions_at_establish = 0;
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    if (command.call == CmCall::kEstablish) transitions_at_establish = verbs().states().size();
    return node().success(command);
  };
  link().push(response(node().last(CmCall::kConnect).id));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(event->status, 0);
  ASSERT_EQ(event->param.conn.private_data_len, 196);
  EXPECT_EQ(static_cast<const std::uint8_t*>(event->param.conn.private_data)[0], 0x5A);
  EXPECT_EQ(static_cast<const std::uint8_t*>(event->param.conn.private_data)[195], 0xA5);
  EXPECT_EQ(event->param.conn.qp_num, 0xABCU);
  EXPECT_EQ(event->param.conn.responder_resources, 4);
  EXPECT_EQ(event->param.conn.initiator_depth, 5);
  rdma_ack_cm_event(event);
  EXPECT_EQ(verbs().states(), (States{IBV_QPS_INIT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  EXPECT_EQ(transitions_at_establish, 4U);

  EXPECT_EQ(rdma_disconnect(id), 0);
  EXPECT_EQ(verbs().states().back(), IBV_QPS_ERR);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, TransitionsCarryTheAttributesOfTheConnection) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  link().push(response(node().last(CmCall::kConnect).id));
  expect_event(RDMA_CM_EVENT_ESTABLISHED, id);
  const auto transitions = verbs().transitions();
  ASSERT_EQ(transitions.size(), 4U);
  const auto& [init_qpn, init, init_mask] = transitions[1];
  EXPECT_EQ(init_qpn, id->qp->qp_num);
  EXPECT_EQ(init_mask, 0x39);
  EXPECT_EQ(init.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
  const auto& [rtr_qpn, rtr, rtr_mask] = transitions[2];
  EXPECT_EQ(rtr_mask, 0x129181);
  EXPECT_EQ(rtr.dest_qp_num, 0xABCU);
  EXPECT_EQ(rtr.rq_psn, 0x111111U);
  EXPECT_EQ(rtr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(rtr.max_dest_rd_atomic, 4);
  EXPECT_EQ(rtr.min_rnr_timer, 0);
  EXPECT_EQ(rtr.ah_attr.is_global, 1);
  EXPECT_EQ(rtr.ah_attr.grh.sgid_index, 1);
  EXPECT_EQ(rtr.ah_attr.grh.dgid.raw[15], 2);
  EXPECT_EQ(rtr.ah_attr.grh.flow_label, 0x12345U);
  EXPECT_EQ(rtr.ah_attr.grh.traffic_class, 32);
  EXPECT_EQ(rtr.ah_attr.grh.hop_limit, 64);
  EXPECT_EQ(rtr.ah_attr.port_num, 1);
  const auto& [rts_qpn, rts, rts_mask] = transitions[3];
  EXPECT_EQ(rts_mask, 0x12E01);
  EXPECT_EQ(rts.sq_psn, 0x222222U);
  EXPECT_EQ(rts.max_rd_atomic, 5);
  EXPECT_EQ(rts.timeout, 17);
  EXPECT_EQ(rts.retry_cnt, 6);
  EXPECT_EQ(rts.rnr_retry, 7);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, AckTimeoutOptionSetsTheQpsTimeoutExactly) {
  rdma_cm_id* id = make_id();
  std::uint8_t timeout = 14;
  ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout)), 0);
  EXPECT_EQ(node().last(CmCall::kSetOption).option_value, 14U);
  resolve(id);
  connect(id, std::array<rdma_conn_param, 1>{}.data());
  link().push(response(node().last(CmCall::kConnect).id));
  expect_event(RDMA_CM_EVENT_CONNECT_RESPONSE, id);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  int mask = 0;
  ASSERT_EQ(rdma_init_qp_attr(id, &attributes, &mask), 0);
  EXPECT_EQ(attributes.timeout, 14);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, FailingTransitionGivesConnectErrorAndSwallowsWhatThePeerSaysLater) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  const std::uint32_t handle = node().last(CmCall::kConnect).id;
  verbs().on_modify = [](const Transition& transition) {
    return transition.attributes.qp_state == IBV_QPS_RTR ? ETIMEDOUT : 0;
  };
  link().push(response(handle));
  expect_event(RDMA_CM_EVENT_CONNECT_ERROR, id, -1);
  EXPECT_EQ(verbs().states().back(), IBV_QPS_ERR);
  EXPECT_EQ(node().count(CmCall::kEstablish), 0U);
  set_nonblocking();
  link().push(make_event(CmEventType::kRejected, handle, 28));
  link().push(make_event(CmEventType::kDisconnected, handle));
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, WithdrawnResponseGivesConnectError) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    ipc::CmReply reply = node().success(command);
    if (command.call == CmCall::kEstablish) reply.error = EINVAL;
    return reply;
  };
  link().push(response(node().last(CmCall::kConnect).id));
  expect_event(RDMA_CM_EVENT_CONNECT_ERROR, id, -1);
  EXPECT_EQ(verbs().states().back(), IBV_QPS_ERR);
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, WhatCrossesWithTheLastMessageEndsTheConnection) {
  for (const auto& [crossing, seen] : {std::pair{CmEventType::kRejected, RDMA_CM_EVENT_REJECTED},
                                       std::pair{CmEventType::kUnreachable, RDMA_CM_EVENT_DISCONNECTED}}) {
    rdma_cm_id* id = make_connecting_id_with_qp();
    const std::uint32_t handle = node().last(CmCall::kConnect).id;
    link().push(response(handle));
    link().push(make_event(crossing, handle, 4));
    expect_event(RDMA_CM_EVENT_ESTABLISHED, id);
    expect_event(seen, id, crossing == CmEventType::kRejected ? 4 : 0);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
}

TEST_F(ConnectionTest, WithoutQpTheProgramEstablishesItself) {
  rdma_cm_id* id = make_id();
  resolve(id);
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param param{};
  param.qp_num = 0x77;
  param.srq = 1;
  param.retry_count = 3;
  const std::uint32_t handle = connect(id, &param);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.qp_num, 0x77U);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.srq, 1);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.retry_count, 3);
  link().push(response(handle));
  expect_event(RDMA_CM_EVENT_CONNECT_RESPONSE, id);
  EXPECT_EQ(node().count(CmCall::kEstablish), 0U);
  EXPECT_EQ(rdma_establish(id), 0);
  EXPECT_EQ(node().count(CmCall::kEstablish), 1U);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, AttributesFollowThePhaseOfTheConnection) {
  rdma_cm_id* id = make_id();
  ibv_qp_attr attributes{};
  int mask = 0;
  const auto asked = [&](ibv_qp_state state) {
    attributes = ibv_qp_attr{};
    attributes.qp_state = state;
    mask = 0;
    return rdma_init_qp_attr(id, &attributes, &mask) == 0 ? mask : -errno;
  };
  EXPECT_EQ(asked(IBV_QPS_INIT), -EINVAL);  // no device
  resolve(id);
  EXPECT_EQ(asked(IBV_QPS_INIT), 0x39);
  EXPECT_EQ(attributes.qp_access_flags, 0U);
  EXPECT_EQ(asked(IBV_QPS_RTR), 0x39);  // Linux: as for INIT
  EXPECT_EQ(attributes.qp_state, IBV_QPS_RTR);
  EXPECT_EQ(asked(IBV_QPS_ERR), 0x39);
  rdma_conn_param param{};
  const std::uint32_t handle = connect(id, &param);
  EXPECT_EQ(asked(IBV_QPS_INIT), 0x39);
  EXPECT_EQ(attributes.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE));  // no responder resources
  EXPECT_EQ(asked(IBV_QPS_RTR), -EINVAL);
  link().push(response(handle));
  expect_event(RDMA_CM_EVENT_CONNECT_RESPONSE, id);
  EXPECT_EQ(asked(IBV_QPS_RTR), 0x129181);
  EXPECT_EQ(asked(IBV_QPS_RTS), 0x12E01);
  EXPECT_EQ(asked(IBV_QPS_SQD), -EINVAL);
  link().push(make_event(CmEventType::kDisconnected, handle));
  expect_event(RDMA_CM_EVENT_DISCONNECTED, id);
  EXPECT_EQ(asked(IBV_QPS_INIT), -EINVAL);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, NullParametersMeanTheDevicesMaxima) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  const ipc::CmConnParam sent = node().last(CmCall::kConnect).conn;
  EXPECT_EQ(sent.responder_resources, 16);
  EXPECT_EQ(sent.initiator_depth, 32);
  EXPECT_EQ(sent.retry_count, 7);
  EXPECT_EQ(sent.rnr_retry_count, 7);
  EXPECT_EQ(sent.private_data_size, 0U);
  rdma_destroy_ep(id);
}

TEST_F(ConnectionTest, DepthsBeyondTheDeviceAreRefusedAndFfMeansTheMost) {
  rdma_cm_id* id = make_id();
  resolve(id);
  rdma_conn_param param{};
  param.responder_resources = 17;
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.responder_resources = RDMA_MAX_RESP_RES;
  param.initiator_depth = 33;
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  connect(id, &param);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.responder_resources, 16);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.initiator_depth, 32);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, ConnectBeforeResolutionIsRefused) {
  rdma_cm_id* id = make_id();
  rdma_conn_param param{};
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, RequestMakesAnIdWithEverythingKnown) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = take_request(listener, 900);
  EXPECT_EQ(node().last(CmCall::kRequestTaken).id, 900U);
  EXPECT_EQ(id->channel, channel_);
  EXPECT_EQ(id->context, listener->context);
  EXPECT_EQ(id->ps, RDMA_PS_TCP);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->route.num_paths, 1);
  EXPECT_EQ(rdma_get_dst_port(id), htons(7174));
  EXPECT_EQ(id->qp, nullptr);
  rdma_destroy_id(id);
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, WithdrawnRequestIsNotShown) {
  rdma_cm_id* listener = make_listener();
  const std::uint32_t handle = node().last(CmCall::kListen).id;
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    ipc::CmReply reply = node().success(command);
    if (command.call == CmCall::kRequestTaken && command.id == 900) reply.error = EINVAL;
    return reply;
  };
  link().push(request(handle, 900));
  link().push(request(handle, 901));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(node().last(CmCall::kRequestTaken).id, 901U);
  EXPECT_EQ(node().last(CmCall::kDestroyId).id, 900U);
  rdma_cm_id* id = event->id;
  rdma_ack_cm_event(event);
  rdma_destroy_id(id);
  // The swallowed event must not keep the listener.
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, RequestsCountForTheListener) {
  rdma_cm_id* listener = make_listener();
  link().push(request(node().last(CmCall::kListen).id, 900));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  // The new ID does not wait for the acknowledgement of the event that made it.
  rdma_destroy_id(event->id);
  rdma_ack_cm_event(event);
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, AcceptBringsTheQpToRtsBeforeRepLeaves) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = take_request(listener, 900);
  ibv_qp_init_attr attributes = qp_attributes();
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
  States at_accept;
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    if (command.call == CmCall::kAccept) at_accept = verbs().states();
    return node().success(command);
  };
  rdma_conn_param param{};
  param.responder_resources = 2;
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.private_data = "hello";
  param.private_data_len = 5;
  ASSERT_EQ(rdma_accept(id, &param), 0);
  EXPECT_EQ(at_accept, (States{IBV_QPS_INIT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}));
  const ipc::CmCommand accept = node().last(CmCall::kAccept);
  EXPECT_EQ(accept.conn.qp_num, id->qp->qp_num);
  EXPECT_EQ(accept.conn.responder_resources, 2);
  EXPECT_EQ(accept.conn.initiator_depth, 5);  // the least of the request's and the device's
  EXPECT_EQ(accept.conn.private_data_size, 5U);
  EXPECT_EQ(verbs().transitions()[2].attributes.max_dest_rd_atomic, 2);
  EXPECT_EQ(verbs().transitions()[3].attributes.max_rd_atomic, 5);
  link().push(make_event(CmEventType::kEstablished, 900));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(event->param.conn.private_data, nullptr);
  rdma_ack_cm_event(event);
  EXPECT_EQ(rdma_accept(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_ep(id);
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, AcceptEchoesTheVendorOfARequestWhoseEceTheQpCannotHave) {
  rdma_cm_id* listener = make_listener();
  ipc::CmEvent asked = request(node().last(CmCall::kListen).id, 900);
  asked.conn.ece_vendor_id = 0x15b3;
  asked.conn.ece_options = 7;
  link().push(asked);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  rdma_cm_id* id = event->id;
  rdma_ack_cm_event(event);
  ibv_qp_init_attr attributes = qp_attributes();
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
  ASSERT_EQ(rdma_accept(id, nullptr), 0);
  EXPECT_EQ(node().last(CmCall::kAccept).conn.ece_vendor_id, 0x15b3U);
  EXPECT_EQ(node().last(CmCall::kAccept).conn.ece_options, 0U);
  rdma_destroy_ep(id);
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, RefusedAcceptFailsTheQp) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = take_request(listener, 900);
  ibv_qp_init_attr attributes = qp_attributes();
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
  node().answer = [&](FakeLink&, const ipc::CmCommand& command) {
    ipc::CmReply reply = node().success(command);
    if (command.call == CmCall::kAccept) reply.error = EINVAL;
    return reply;
  };
  EXPECT_EQ(rdma_accept(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(verbs().states().back(), IBV_QPS_ERR);
  rdma_destroy_ep(id);
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, RejectCarriesReasonAndData) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = take_request(listener, 900);
  ASSERT_EQ(rdma_reject(id, "no", 2), 0);
  EXPECT_EQ(node().last(CmCall::kReject).conn.reject_reason, 28);
  EXPECT_EQ(node().last(CmCall::kReject).conn.private_data_size, 2U);
  ASSERT_EQ(rdma_reject_ece(id, nullptr, 0), 0);
  EXPECT_EQ(node().last(CmCall::kReject).conn.reject_reason, 35);
  rdma_destroy_id(id);
  rdma_destroy_id(listener);
}

TEST_F(ConnectionTest, RejectedMovesTheQpToErrAndTellsReasonAndData) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  ipc::CmEvent rejected = make_event(CmEventType::kRejected, node().last(CmCall::kConnect).id, 28);
  rejected.conn.private_data_size = 148;
  rejected.conn.private_data[147] = 9;
  link().push(rejected);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(event->status, 28);
  ASSERT_EQ(event->param.conn.private_data_len, 148);
  EXPECT_EQ(static_cast<const std::uint8_t*>(event->param.conn.private_data)[147], 9);
  rdma_ack_cm_event(event);
  EXPECT_EQ(verbs().states().back(), IBV_QPS_ERR);
  rdma_destroy_ep(id);
}

TEST_F(ConnectionTest, QpIsNotDestroyedWhileAnotherThreadsEventModifiesIt) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  const int qps = verbs().qps;
  std::atomic<bool> modifying{false};
  std::thread destroyer;
  verbs().on_modify = [&](const Transition& transition) {
    if (transition.attributes.qp_state == IBV_QPS_RTR) {
      modifying = true;
      destroyer = std::thread([&] { rdma_destroy_qp(id); });
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      const std::lock_guard lock(verbs().mutex);
      EXPECT_EQ(verbs().qps, qps);
    }
    return 0;
  };
  link().push(response(node().last(CmCall::kConnect).id));
  expect_event(RDMA_CM_EVENT_ESTABLISHED, id);
  EXPECT_TRUE(modifying);
  destroyer.join();
  EXPECT_EQ(verbs().qps, qps - 1);
  EXPECT_EQ(id->qp, nullptr);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, DestroyDuringProcessingOfAnEventWaitsForIt) {
  rdma_cm_id* id = make_connecting_id_with_qp();
  std::thread destroyer;
  verbs().on_modify = [&](const Transition& transition) {
    if (transition.attributes.qp_state == IBV_QPS_RTR) {
      destroyer = std::thread([&] { rdma_destroy_ep(id); });
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    }
    return 0;
  };
  link().push(response(node().last(CmCall::kConnect).id));
  expect_event(RDMA_CM_EVENT_ESTABLISHED, id);
  destroyer.join();
}

TEST_F(ConnectionTest, CreateQpMakesWhatIsMissingAndCopiesTheLimitsBack) {
  rdma_cm_id* id = make_id();
  ibv_qp_init_attr attributes = qp_attributes();
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);  // no device yet
  resolve(id);
  const int cqs = verbs().cqs;
  const int channels = verbs().comp_channels;
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
  EXPECT_EQ(id->qp->pd, id->pd);
  EXPECT_EQ(attributes.send_cq, id->send_cq);
  EXPECT_EQ(attributes.recv_cq, id->recv_cq);
  EXPECT_EQ(attributes.cap.max_inline_data, 64U);
  EXPECT_EQ(id->send_cq->channel, id->send_cq_channel);
  EXPECT_EQ(id->send_cq->cq_context, id);
  EXPECT_EQ(id->recv_cq->cqe, 8);
  EXPECT_EQ(verbs().cqs, cqs + 2);
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);  // it has one
  rdma_destroy_qp(id);
  EXPECT_EQ(verbs().cqs, cqs);
  EXPECT_EQ(verbs().comp_channels, channels);
  EXPECT_EQ(id->send_cq, nullptr);

  ibv_context elsewhere{};
  ibv_pd foreign{&elsewhere, 0};
  attributes = qp_attributes();
  EXPECT_EQ(rdma_create_qp(id, &foreign, &attributes), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_id(id);
}

TEST_F(ConnectionTest, SrqOfTheIdIsUsedByItsQp) {
  rdma_cm_id* id = make_id();
  resolve(id);
  ibv_srq_init_attr srq_attributes{};
  ASSERT_EQ(rdma_create_srq(id, nullptr, &srq_attributes), 0);
  ibv_qp_init_attr attributes = qp_attributes();
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0);
  EXPECT_EQ(id->qp->srq, id->srq);
  connect(id);
  EXPECT_EQ(node().last(CmCall::kConnect).conn.srq, 1);
  rdma_destroy_ep(id);
  EXPECT_EQ(verbs().srqs, 0);
}

class SynchronousTest : public ConnectionTest {
 protected:
  void SetUp() override {
    ConnectionTest::SetUp();
    ASSERT_EQ(rdma_create_id(nullptr, &id_, nullptr, RDMA_PS_TCP), 0);
  }
  void TearDown() override {
    rdma_destroy_ep(id_);
    EXPECT_EQ(node().links_open(), 1U);
    ConnectionTest::TearDown();
  }
  FakeLink& own() { return node().link(1); }
  // The node pushes `event` when it gets `call`.
  void answer_with(CmCall call, ipc::CmEvent event) {
    node().answer = [this, call, event](FakeLink& on, const ipc::CmCommand& command) mutable {
      event.id = command.id;
      if (command.call == call) on.push(event);
      return node().success(command);
    };
  }
  void resolve_synchronously() {
    sockaddr_in to = ipv4("10.0.0.2", 7174);
    answer_with(CmCall::kResolveAddr, make_event(CmEventType::kAddrResolved, 0));
    ASSERT_EQ(rdma_resolve_addr(id_, nullptr, generic(to), 1000), 0);
    EXPECT_EQ(id_->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
    answer_with(CmCall::kResolveRoute, make_event(CmEventType::kRouteResolved, 0));
    ASSERT_EQ(rdma_resolve_route(id_, 1000), 0);
    EXPECT_EQ(id_->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  rdma_cm_id* id_ = nullptr;
};

TEST_F(SynchronousTest, CallsWaitForTheirEventAndKeepIt) {
  resolve_synchronously();
  ibv_qp_init_attr attributes = qp_attributes();
  ASSERT_EQ(rdma_create_qp(id_, nullptr, &attributes), 0);
  answer_with(CmCall::kConnect, response(0));
  ASSERT_EQ(rdma_connect(id_, nullptr), 0);
  EXPECT_EQ(id_->event->event, RDMA_CM_EVENT_ESTABLISHED);
  answer_with(CmCall::kDisconnect, make_event(CmEventType::kDisconnected, 0));
  ASSERT_EQ(rdma_disconnect(id_), 0);
  EXPECT_EQ(id_->event->event, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(SynchronousTest, StatusBecomesErrno) {
  sockaddr_in to = ipv4("10.0.0.2", 7174);
  answer_with(CmCall::kResolveAddr, make_event(CmEventType::kAddrError, 0, -ETIMEDOUT));
  EXPECT_EQ(rdma_resolve_addr(id_, nullptr, generic(to), 1000), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
  resolve_synchronously();
  rdma_conn_param param{};
  answer_with(CmCall::kConnect, make_event(CmEventType::kRejected, 0, 8));
  EXPECT_EQ(rdma_connect(id_, &param), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(id_->event->status, 8);
}

TEST_F(SynchronousTest, GetRequestGivesTheNewIdAChannelOfItsOwn) {
  sockaddr_in at = ipv4("10.0.0.1", 7471);
  rdma_addrinfo info{};
  info.ai_flags = RAI_PASSIVE;
  info.ai_port_space = RDMA_PS_TCP;
  info.ai_qp_type = IBV_QPT_RC;
  info.ai_src_addr = generic(at);
  info.ai_src_len = sizeof(at);
  ibv_qp_init_attr attributes = qp_attributes();
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, &info, nullptr, &attributes), 0);
  ASSERT_EQ(rdma_listen(listener, 0), 0);
  node().link(2).push(request(node().last(CmCall::kListen).id, 900));
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &id), 0);
  EXPECT_NE(id->channel, listener->channel);
  EXPECT_EQ(node().last(CmCall::kMigrateId).id, 900U);
  EXPECT_NE(id->qp, nullptr);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->param.conn.private_data_len, 56);
  answer_with(CmCall::kAccept, make_event(CmEventType::kEstablished, 0));
  ASSERT_EQ(rdma_accept(id, nullptr), 0);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ESTABLISHED);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

TEST_F(SynchronousTest, EndpointsDataComesBeforeTheCalls) {
  resolve_synchronously();
  sockaddr_in to = ipv4("10.0.0.2", 7471);
  rdma_addrinfo info{};
  info.ai_port_space = RDMA_PS_TCP;
  info.ai_qp_type = IBV_QPT_RC;
  info.ai_dst_addr = generic(to);
  info.ai_dst_len = sizeof(to);
  char prefix[] = "ab";
  info.ai_connect = prefix;
  info.ai_connect_len = 2;
  node().answer = [this](FakeLink& on, const ipc::CmCommand& command) {
    if (command.call == CmCall::kResolveAddr) on.push(make_event(CmEventType::kAddrResolved, command.id));
    if (command.call == CmCall::kResolveRoute) on.push(make_event(CmEventType::kRouteResolved, command.id));
    if (command.call == CmCall::kConnect) on.push(make_event(CmEventType::kRejected, command.id, 28));
    return node().success(command);
  };
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_ep(&id, &info, nullptr, nullptr), 0);
  rdma_conn_param param{};
  param.private_data = "c";
  param.private_data_len = 1;
  EXPECT_EQ(rdma_connect(id, &param), -1);
  const ipc::CmConnParam sent = node().last(CmCall::kConnect).conn;
  ASSERT_EQ(sent.private_data_size, 3U);
  EXPECT_EQ(std::memcmp(sent.private_data.data(), "abc", 3), 0);
  rdma_destroy_ep(id);
}

TEST_F(SynchronousTest, GetRequestNeedsASynchronousId) {
  rdma_cm_id* listener = make_listener();
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_get_request(listener, &id), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_id(listener);
}

}  // namespace
}  // namespace ucm::test
