// The verbs ABI as a program sees it, over one process and the loopback interface.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "abi/verbs/loopback_session.h"
#include "abi/verbs/pair.h"
#include "support/sanitizer.h"

namespace ucm::testing {
namespace {

using Device = VerbsTest;
using Rc = VerbsTest;
using Ud = VerbsTest;
using Srq = VerbsTest;
using Events = VerbsTest;
using Memory = VerbsTest;
using Extended = VerbsTest;

TEST_F(Device, TellsNamePortGidsAndLimits) {
  EXPECT_STREQ(ibv_get_device_name(device_), "ucm_lo");
  EXPECT_EQ(device_->node_type, IBV_NODE_CA);
  EXPECT_EQ(device_->transport_type, IBV_TRANSPORT_IB);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(ibv_query_port(context_, 2, &port), EINVAL);

  ibv_gid_entry entries[8];
  ASSERT_EQ(ibv_query_gid_table(context_, entries, 8, 0), 2);
  EXPECT_EQ(entries[0].gid_type, IBV_GID_TYPE_ROCE_V2);
  EXPECT_EQ(entries[0].gid.raw[12], 127);
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(context_, 1, 5, &gid), 0);
  EXPECT_EQ(gid.global.interface_id, 0u);
  EXPECT_EQ(ibv_query_gid(context_, 1, port.gid_tbl_len, &gid), -1);

  ibv_device_attr attributes{};
  ASSERT_EQ(ibv_query_device(context_, &attributes), 0);
  EXPECT_NE(attributes.node_guid, 0u);
  EXPECT_GT(attributes.max_qp_wr, 0);
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, pkey), 0);
}

// The test looks for a pointer behind the public structure, as vendors' libraries do.
TEST_F(Device, IsNobodyElsesByThePointerBehindIt) {
  const void* operations = nullptr;
  std::memcpy(&operations, reinterpret_cast<const char*>(device_) + sizeof(ibv_device), sizeof operations);
  EXPECT_NE(operations, nullptr);
}

TEST_F(Device, SameDeviceIsTheSamePointerInEveryList) {
  ibv_device** const list = ibv_get_device_list(nullptr);
  EXPECT_EQ(list[0], device_);
  EXPECT_EQ(list[1], nullptr);
  ibv_free_device_list(list);
}

TEST_F(Device, WithoutANodeTheListIsEmptyAndErrnoSaysWhy) {
  lose_node();
  int count = -1;
  ibv_device** const list = ibv_get_device_list(&count);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(count, 0);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(list[0], nullptr);
  ibv_free_device_list(list);
}

TEST_F(Device, UnsupportedCallsSayEopnotsupp) {
  errno = 0;
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, 4096, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_cq* const cq = ibv_create_cq(context_, 1, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RAW_PACKET;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Rc, MemoryWindowsOfBothTypesLetAPeerIn) {
  Side a(pd_, IBV_QPT_RC);
  Side b(pd_, IBV_QPT_RC);
  connect(a, b, 0);
  ibv_mr* const closed = ibv_reg_mr(pd_, b.bytes.data(), Side::kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ASSERT_NE(closed, nullptr);
  const ibv_mw_bind_info info{
      .mr = closed, .addr = b.sge(0, 0).addr, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* const window = ibv_alloc_mw(pd_, type);
    ASSERT_NE(window, nullptr);
    const std::uint32_t before = window->rkey;
    if (type == IBV_MW_TYPE_1) {
      ibv_mw_bind bind{.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
      ASSERT_EQ(ibv_bind_mw(b.qp, window, &bind), 0);
    } else {
      window->rkey = ibv_inc_rkey(window->rkey);
      ASSERT_EQ(b.post_send(1, IBV_WR_BIND_MW, 0, 0,
                            [&](ibv_send_wr& request) {
                              request.bind_mw = {.mw = window, .rkey = window->rkey, .bind_info = info};
                            }),
                0);
    }
    EXPECT_NE(window->rkey, before);
    const ibv_wc bound = b.await();
    EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
    EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
    a.fill(type);
    ASSERT_EQ(
        a.post_send(2, IBV_WR_RDMA_WRITE, 0, 64,
                    [&](ibv_send_wr& request) { request.wr.rdma = {.remote_addr = info.addr, .rkey = window->rkey}; }),
        0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.begin() + 64, b.bytes.begin()));
    EXPECT_EQ(ibv_dereg_mr(closed), EBUSY);
    EXPECT_EQ(ibv_dealloc_mw(window), 0);
  }
  EXPECT_EQ(ibv_dereg_mr(closed), 0);
}

TEST_F(Rc, EveryOpcodeMovesItsBytes) {
  for (const std::uint8_t gid_index : {std::uint8_t{0}, std::uint8_t{1}}) {
    Side a(pd_, IBV_QPT_RC);
    Side b(pd_, IBV_QPT_RC);
    connect(a, b, gid_index);
    a.fill(1);

    ASSERT_EQ(b.post_recv(1, 0, 5000), 0);
    ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, 5000), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    ibv_wc received = b.await();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, 5000u);
    EXPECT_EQ(received.qp_num, b.qp->qp_num);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.begin() + 5000, b.bytes.begin()));

    ASSERT_EQ(b.post_recv(3, 0, 64), 0);
    ASSERT_EQ(a.post_send(4, IBV_WR_SEND_WITH_IMM, 0, 64, [](ibv_send_wr& request) { request.imm_data = 0x1234; }), 0);
    EXPECT_EQ(a.await().opcode, IBV_WC_SEND);
    received = b.await();
    EXPECT_TRUE(received.wc_flags & IBV_WC_WITH_IMM);
    EXPECT_EQ(received.imm_data, 0x1234u);

    a.fill(9);
    ASSERT_EQ(a.post_remote(5, IBV_WR_RDMA_WRITE, Side::kBytes, b), 0);
    EXPECT_EQ(a.await().opcode, IBV_WC_RDMA_WRITE);
    EXPECT_EQ(a.bytes, b.bytes);

    b.fill(77);
    ASSERT_EQ(a.post_remote(6, IBV_WR_RDMA_READ, Side::kBytes, b), 0);
    EXPECT_EQ(a.await().opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(a.bytes, b.bytes);

    ASSERT_EQ(b.post_recv(7, 0, 0), 0);
    ASSERT_EQ(a.post_remote(8, IBV_WR_RDMA_WRITE_WITH_IMM, 100, b), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.await().opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  }
}

TEST_F(Rc, AtomicsReturnTheOldValue) {
  Side a(pd_, IBV_QPT_RC);
  Side b(pd_, IBV_QPT_RC);
  connect(a, b);
  std::uint64_t value = 40;
  std::memcpy(b.bytes.data(), &value, sizeof value);
  const auto target = [&](ibv_send_wr& request) {
    request.wr.atomic.remote_addr = b.sge(0, 0).addr;
    request.wr.atomic.rkey = b.mr->rkey;
    request.wr.atomic.compare_add = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 2 : 42;
    request.wr.atomic.swap = 7;
  };
  ASSERT_EQ(a.post_send(1, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8, target), 0);
  EXPECT_EQ(a.await().opcode, IBV_WC_FETCH_ADD);
  std::memcpy(&value, a.bytes.data(), sizeof value);
  EXPECT_EQ(value, 40u);
  ASSERT_EQ(a.post_send(2, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 8, target), 0);
  EXPECT_EQ(a.await().opcode, IBV_WC_COMP_SWAP);
  std::memcpy(&value, a.bytes.data() + 8, sizeof value);
  EXPECT_EQ(value, 42u);
  std::memcpy(&value, b.bytes.data(), sizeof value);
  EXPECT_EQ(value, 7u);
}

TEST_F(Rc, InlineDataMayBeReusedAtOnce) {
  Side a(pd_, IBV_QPT_RC);
  Side b(pd_, IBV_QPT_RC);
  connect(a, b);
  a.fill(5);
  const std::uint8_t first = a.bytes[0];
  ASSERT_EQ(b.post_recv(1, 0, 128), 0);
  ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, 128, [](ibv_send_wr& request) { request.send_flags |= IBV_SEND_INLINE; }),
            0);
  a.fill(99);
  EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.bytes[0], first);
  EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
}

TEST_F(Rc, WrongRkeyIsARemoteAccessErrorAndFlushesTheRest) {
  Side a(pd_, IBV_QPT_RC);
  Side b(pd_, IBV_QPT_RC);
  connect(a, b);
  ASSERT_EQ(a.post_send(1, IBV_WR_RDMA_WRITE, 0, 8,
                        [&](ibv_send_wr& request) {
                          request.wr.rdma.remote_addr = b.sge(0, 0).addr;
                          request.wr.rdma.rkey = b.mr->rkey + 0x100;
                        }),
            0);
  ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, 8), 0);
  EXPECT_EQ(a.await().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(a.await().status, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(ibv_query_qp(a.qp, &attributes, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
}

TEST_F(Rc, BadArgumentsNameTheirRequest) {
  Side a(pd_, IBV_QPT_RC);
  EXPECT_EQ(a.post_send(1, IBV_WR_SEND, 0, 8), EINVAL);  // RESET
  ASSERT_EQ(to_init(a.qp), 0);
  ibv_sge element = a.sge(0, 8);
  ibv_recv_wr second{.wr_id = 2, .next = nullptr, .sg_list = &element, .num_sge = 33};
  ibv_recv_wr first{.wr_id = 1, .next = &second, .sg_list = &element, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(a.qp, &first, &bad), EINVAL);
  EXPECT_EQ(bad, &second);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attributes, IBV_QP_STATE), EINVAL);
  attributes.pkey_index = 1;
  EXPECT_EQ(ibv_modify_qp(a.qp, &attributes, IBV_QP_PKEY_INDEX), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(a.cq), EBUSY);
}

// The link that has the faults is made with the first device.
class BadNetwork : public VerbsTest {
 protected:
  void SetUp() override {
    set_faults({.loss = 5, .duplicate = 5, .reorder = 5});
    VerbsTest::SetUp();
  }
};

TEST_F(BadNetwork, NoByteIsWrongOrMissing) {
  Side a(pd_, IBV_QPT_RC);
  Side b(pd_, IBV_QPT_RC);
  connect(a, b);
  for (int round = 0; round < 20; ++round) {
    a.fill(static_cast<std::uint8_t>(round));
    ASSERT_EQ(b.post_recv(1, 0, Side::kBytes), 0);
    ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, Side::kBytes), 0);
    ASSERT_EQ(b.await().status, IBV_WC_SUCCESS);
    ASSERT_EQ(a.await().status, IBV_WC_SUCCESS);
    EXPECT_EQ(a.bytes, b.bytes);
  }
}

TEST_F(Device, AContextOpenedBeforeAForkServesTheChild) {
  if (test::kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer allows no threads in the child of a process with threads";
  const pid_t child = fork();
  if (child == 0) {
    enter_own_network();  // UDP 4791 of the first one is the parent's
    ibv_pd* const pd = ibv_alloc_pd(context_);
    {
      Side a(pd, IBV_QPT_RC);
      Side b(pd, IBV_QPT_RC);
      connect(a, b);
      EXPECT_EQ(b.post_recv(1, 0, 64), 0);
      EXPECT_EQ(a.post_send(2, IBV_WR_SEND, 0, 64), 0);
      EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
      EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    }
    _exit(HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Ud, ADatagramCarriesItsGrhAndCanBeAnswered) {
  Side a(pd_, IBV_QPT_UD);
  Side b(pd_, IBV_QPT_UD);
  for (ibv_qp* const qp : {a.qp, b.qp}) ready_for_datagrams(qp);
  a.fill(3);
  for (const std::uint8_t gid_index : {std::uint8_t{0}, std::uint8_t{1}}) {
    ibv_ah_attr route = route_to(context_, gid_index);
    ibv_ah* const ah = ibv_create_ah(pd_, &route);
    ASSERT_NE(ah, nullptr);
    ASSERT_EQ(b.post_recv(1, 0, 2048), 0);
    ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, 1000,
                          [&](ibv_send_wr& request) {
                            request.wr.ud = {.ah = ah, .remote_qpn = b.qp->qp_num, .remote_qkey = kQkey};
                          }),
              0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    ibv_wc received = b.await();
    ASSERT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, 1040u);
    EXPECT_EQ(received.src_qp, a.qp->qp_num);
    EXPECT_TRUE(received.wc_flags & IBV_WC_GRH);
    EXPECT_TRUE(std::equal(a.bytes.begin(), a.bytes.begin() + 1000, b.bytes.begin() + 40));

    ibv_ah_attr back{};
    auto* const grh = reinterpret_cast<ibv_grh*>(b.bytes.data());
    ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &received, grh, &back), 0);
    EXPECT_EQ(back.grh.sgid_index, gid_index);
    EXPECT_EQ(std::memcmp(&back.grh.dgid, &route.grh.dgid, sizeof back.grh.dgid), 0);
    ibv_ah* const answer = ibv_create_ah_from_wc(pd_, &received, grh, 1);
    ASSERT_NE(answer, nullptr);
    EXPECT_EQ(ibv_destroy_ah(answer), 0);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
  }
}

// IBTA C10-93.1.1
TEST_F(Ud, AMessageLongerThanThePortsMtuCompletesAndIsNotSent) {
  ibv_port_attr port{};
  const auto wait_for_mtu = [&](std::uint32_t bytes, ibv_mtu code) {
    set_mtu(bytes);
    while (ibv_query_port(context_, 1, &port) == 0 && port.active_mtu != code) std::this_thread::yield();
  };
  wait_for_mtu(1500, IBV_MTU_1024);
  Side a(pd_, IBV_QPT_UD);
  ready_for_datagrams(a.qp);
  ibv_ah_attr route = route_to(context_, 0);
  ibv_ah* const ah = ibv_create_ah(pd_, &route);
  const auto send_to_itself = [&](std::uint64_t id, std::size_t length) {
    return a.post_send(id, IBV_WR_SEND, 0, length, [&](ibv_send_wr& request) {
      request.wr.ud = {.ah = ah, .remote_qpn = a.qp->qp_num, .remote_qkey = kQkey};
    });
  };
  ASSERT_EQ(a.post_recv(1, 4096, 4096), 0);
  ASSERT_EQ(send_to_itself(2, 1025), 0);
  ASSERT_EQ(send_to_itself(3, 1024), 0);
  std::uint32_t received = 0;
  for (int i = 0; i < 3; ++i) {
    const ibv_wc completion = a.await();
    EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
    if (completion.wr_id == 1) received = completion.byte_len;
  }
  EXPECT_EQ(received, 1024u + 40u);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  wait_for_mtu(65536, IBV_MTU_4096);
}

TEST_F(Srq, FeedsItsQueuePairAndTellsItsLimit) {
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  {
    Side a(pd_, IBV_QPT_RC);
    Side b(pd_, IBV_QPT_RC, nullptr, srq);
    connect(a, b);
    ibv_sge element = b.sge(0, 4096);
    ibv_recv_wr request{.wr_id = 5, .next = nullptr, .sg_list = &element, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &request, &bad), 0);
    ASSERT_EQ(ibv_post_srq_recv(srq, &request, &bad), 0);
    ibv_srq_attr limit{.max_wr = 0, .max_sge = 0, .srq_limit = 2};
    ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
    EXPECT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_MAX_WR), EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    ASSERT_EQ(a.post_send(1, IBV_WR_SEND, 0, 4096), 0);
    EXPECT_EQ(b.await().wr_id, 5u);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(Events, AnArmedQueueWakesItsChannelOnce) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  {
    Side a(pd_, IBV_QPT_RC);
    Side b(pd_, IBV_QPT_RC, channel);
    connect(a, b);
    ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
    ASSERT_EQ(b.post_recv(1, 0, 64), 0);
    ASSERT_EQ(b.post_recv(2, 0, 64), 0);
    ASSERT_EQ(a.post_send(1, IBV_WR_SEND, 0, 64), 0);
    ibv_cq* ready = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &ready, &user), 0);
    EXPECT_EQ(ready, b.cq);
    EXPECT_EQ(user, &b);
    EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
    ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, 64), 0);
    EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
    pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);

    ASSERT_EQ(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK), 0);
    EXPECT_EQ(ibv_get_cq_event(channel, &ready, &user), -1);
    EXPECT_EQ(errno, EAGAIN);
    ibv_ack_cq_events(b.cq, 1);
  }
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// perftest asks for one and has two under way now and then.
TEST_F(Events, AQueueForOneHasRoomForAFewMore) {
  ibv_cq* const cq = ibv_create_cq(context_, 1, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {.max_send_wr = 1, .max_recv_wr = 3, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* const qp = ibv_create_qp(pd_, &init);
  ASSERT_NE(qp, nullptr);
  ibv_qp_attr failed{};
  failed.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &failed, IBV_QP_STATE), 0);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ibv_recv_wr request{};
    request.wr_id = i;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &request, &bad), 0);
  }
  EXPECT_EQ(ibv_resize_cq(cq, 2), EINVAL) << "it holds more than that";
  ibv_wc flushed[4]{};
  EXPECT_EQ(ibv_poll_cq(cq, 4, flushed), 3);
  EXPECT_EQ(ibv_resize_cq(cq, 1), 0);
  EXPECT_GT(cq->cqe, 2);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(Events, DestroyWithdrawsWhatWasNotReadAndWaitsForAcknowledgement) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context_);
  std::atomic<bool> acknowledged{false};
  std::thread acknowledger;
  {
    Side a(pd_, IBV_QPT_RC, channel);
    Side b(pd_, IBV_QPT_RC, channel);
    connect(a, b);
    ASSERT_EQ(ibv_req_notify_cq(a.cq, 0), 0);
    ASSERT_EQ(b.post_recv(1, 0, 64), 0);
    ASSERT_EQ(a.post_send(1, IBV_WR_SEND, 0, 64), 0);
    EXPECT_EQ(a.await().status, IBV_WC_SUCCESS);
    ibv_cq* ready = nullptr;
    void* user = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &ready, &user), 0);
    ASSERT_EQ(ready, a.cq);

    EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);
    ASSERT_EQ(ibv_req_notify_cq(b.cq, 0), 0);
    ASSERT_EQ(b.post_recv(2, 0, 64), 0);
    ASSERT_EQ(a.post_send(2, IBV_WR_SEND, 0, 64), 0);
    EXPECT_EQ(b.await().status, IBV_WC_SUCCESS);  // its event stays unread
    acknowledger = std::thread([&, cq = a.cq] {
      acknowledged = true;
      ibv_ack_cq_events(cq, 1);
    });
  }
  EXPECT_TRUE(acknowledged);
  acknowledger.join();
  pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(Events, AThreadThatWaitsForAnEventCanBeCancelled) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context_);
  std::atomic<bool> waiting{false};
  std::pair<ibv_comp_channel*, std::atomic<bool>*> argument{channel, &waiting};
  pthread_t thread{};
  const auto body = [](void* of) -> void* {
    auto& [waits_on, flag] = *static_cast<decltype(argument)*>(of);
    flag->store(true);
    ibv_cq* cq = nullptr;
    void* user = nullptr;
    ibv_get_cq_event(waits_on, &cq, &user);
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, body, &argument), 0);
  while (!waiting) sched_yield();
  ASSERT_EQ(pthread_cancel(thread), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// Field case 3.20
TEST_F(Events, LinksThatGoDownAndAddressesThatChangeAreTold) {
  const auto told = [&] {
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    EXPECT_EQ(event.element.port_num, 1);
    ibv_ack_async_event(&event);
    return event.event_type;
  };
  set_link({.running = false});
  EXPECT_EQ(told(), IBV_EVENT_PORT_ERR);
  set_link({.running = false, .second_address = false});
  EXPECT_EQ(told(), IBV_EVENT_GID_CHANGE);
  set_link({});
  EXPECT_EQ(told(), IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(told(), IBV_EVENT_GID_CHANGE);
  set_link({});
  pollfd nothing{context_->async_fd, POLLIN, 0};
  EXPECT_EQ(poll(&nothing, 1, 0), 0) << "an event without a change";
}

TEST_F(Events, LossOfTheNodeFlushesWorkAndRaisesEvents) {
  {
    Side a(pd_, IBV_QPT_RC);
    Side b(pd_, IBV_QPT_RC);
    connect(a, b);
    ASSERT_EQ(b.post_recv(1, 0, 64), 0);
    lose_node();
    EXPECT_EQ(b.await().status, IBV_WC_WR_FLUSH_ERR);
    int fatal_qps = 0;
    int fatal_devices = 0;
    for (int i = 0; i < 3; ++i) {
      ibv_async_event event{};
      ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
      fatal_qps += event.event_type == IBV_EVENT_QP_FATAL;
      fatal_devices += event.event_type == IBV_EVENT_DEVICE_FATAL;
      ibv_ack_async_event(&event);
    }
    EXPECT_EQ(fatal_qps, 2);
    EXPECT_EQ(fatal_devices, 1);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RESET;
    EXPECT_EQ(ibv_modify_qp(a.qp, &attributes, IBV_QP_STATE), 0);
    EXPECT_EQ(to_init(a.qp), EIO);
  }
}

TEST_F(Memory, UnmappedAndReadOnlyMemoryIsRefused) {
  constexpr std::size_t kPage = 4096;
  constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
  constexpr int kRemoteRead = IBV_ACCESS_REMOTE_READ;
  constexpr int kRemoteWrite = IBV_ACCESS_REMOTE_WRITE;
  auto* const pages =
      static_cast<char*>(mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(munmap(pages + kPage, kPage), 0);
  EXPECT_EQ(ibv_reg_mr(pd_, pages, 3 * kPage, kLocalWrite), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(mprotect(pages, kPage, PROT_READ), 0);
  EXPECT_EQ(ibv_reg_mr(pd_, pages, kPage, kLocalWrite), nullptr);
  EXPECT_EQ(errno, EFAULT);
  ibv_mr* const readable = ibv_reg_mr(pd_, pages, kPage, kRemoteRead);
  ASSERT_NE(readable, nullptr);
  EXPECT_EQ(ibv_reg_mr(pd_, pages + 2 * kPage, kPage, kRemoteWrite), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);

  EXPECT_EQ(ibv_rereg_mr(readable, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, pages + kPage, kPage, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(readable, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, pages + 2 * kPage, kPage, 0), 0);
  EXPECT_EQ(readable->addr, pages + 2 * kPage);
  EXPECT_EQ(ibv_dereg_mr(readable), 0);
  munmap(pages, kPage);
  munmap(pages + 2 * kPage, kPage);
}

TEST_F(Memory, DomainsAndRegionsCanBeImportedWithinTheProcess) {
  std::array<char, 64> bytes{};
  constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;
  ibv_mr* const region = ibv_reg_mr(pd_, bytes.data(), bytes.size(), kLocalWrite);
  ibv_context* const other = ibv_import_device(dup(context_->cmd_fd));
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->device, context_->device);
  ibv_pd* const pd = ibv_import_pd(other, pd_->handle);
  ASSERT_NE(pd, nullptr);
  ibv_mr* const imported = ibv_import_mr(pd, region->handle);
  ASSERT_NE(imported, nullptr);
  EXPECT_EQ(imported->lkey, region->lkey);
  EXPECT_EQ(imported->rkey, region->rkey);
  EXPECT_EQ(imported->addr, nullptr);

  EXPECT_EQ(ibv_import_pd(other, 12345), nullptr);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(ibv_import_mr(pd, region->handle + 1), nullptr);
  EXPECT_EQ(errno, ENOENT);
  const int strange = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(ibv_import_device(strange), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  close(strange);

  ibv_unimport_mr(imported);
  ibv_unimport_pd(pd);
  EXPECT_EQ(ibv_close_device(other), 0);
  EXPECT_EQ(ibv_dereg_mr(region), 0);
}

TEST_F(Extended, BuiltRequestsAndExtendedPolling) {
  ibv_cq_init_attr_ex cq_init{};
  cq_init.cqe = 16;
  cq_init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
  ibv_cq_ex* const cq = ibv_create_cq_ex(context_, &cq_init);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
  init.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd_;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE;
  ibv_qp* const qp = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(qp, nullptr);
  ibv_qp_ex* const builder = ibv_qp_to_qp_ex(qp);
  ASSERT_NE(builder, nullptr);
  {
    Side b(pd_, IBV_QPT_RC);
    EXPECT_EQ(ibv_qp_to_qp_ex(b.qp), nullptr);
    connect(qp, b.qp->qp_num);
    connect(b.qp, qp->qp_num);
    ASSERT_EQ(b.post_recv(1, 512, 64), 0);

    char text[] = "built";
    ibv_wr_start(builder);
    builder->wr_id = 11;
    builder->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(builder, b.mr->rkey, b.sge(0, 0).addr);
    ibv_wr_set_inline_data(builder, text, sizeof text);
    builder->wr_id = 12;
    ibv_wr_send_imm(builder, 77);
    ibv_wr_set_inline_data(builder, text, sizeof text);
    ASSERT_EQ(ibv_wr_complete(builder), 0);

    const ibv_wc received = b.await();
    EXPECT_EQ(received.imm_data, 77u);
    EXPECT_STREQ(reinterpret_cast<const char*>(b.bytes.data()), "built");

    ibv_poll_cq_attr poll_attributes{};
    for (const std::uint64_t expected : {11u, 12u}) {
      int result = ENOENT;
      for (int tries = 0; result == ENOENT && tries < 10'000'000; ++tries) {
        result = ibv_start_poll(cq, &poll_attributes);
      }
      ASSERT_EQ(result, 0);
      EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
      EXPECT_EQ(cq->wr_id, expected);
      EXPECT_EQ(ibv_wc_read_qp_num(cq), qp->qp_num);
      ibv_end_poll(cq);
    }
  }
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace ucm::testing
