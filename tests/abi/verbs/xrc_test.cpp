// XRC as a program sees it: domains, their shared receive queues, and a queue pair for each direction.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "abi/verbs/pair.h"

namespace ucm::testing {
namespace {

class Xrc : public VerbsTest {
 protected:
  static ibv_xrcd_init_attr with_file(int fd, int flags) {
    return {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};
  }
  ibv_xrcd* open_domain(int fd = -1, int flags = O_CREAT) {
    ibv_xrcd_init_attr attributes = with_file(fd, flags);
    return ibv_open_xrcd(context_, &attributes);
  }
  ibv_srq* create_srq(ibv_xrcd* xrcd, ibv_cq* cq) {
    ibv_srq_init_attr_ex init{};
    init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    init.srq_type = IBV_SRQT_XRC;
    init.pd = pd_;
    init.xrcd = xrcd;
    init.cq = cq;
    return ibv_create_srq_ex(context_, &init);
  }
  ibv_qp* create_receiver(ibv_xrcd* xrcd) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_RECV;
    init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    init.xrcd = xrcd;
    return ibv_create_qp_ex(context_, &init);
  }
  ibv_qp* open_again(ibv_xrcd* xrcd, std::uint32_t number) {
    ibv_qp_open_attr attributes{};
    attributes.comp_mask =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT;
    attributes.qp_num = number;
    attributes.xrcd = xrcd;
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.qp_context = this;
    return ibv_open_qp(context_, &attributes);
  }
  static int post(ibv_srq* srq, ibv_sge element, std::uint64_t id) {
    ibv_recv_wr request{.wr_id = id, .next = nullptr, .sg_list = &element, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &request, &bad);
  }
};

TEST_F(Xrc, TheDeviceSaysThatItHasIt) {
  ibv_device_attr attributes{};
  ASSERT_EQ(ibv_query_device(context_, &attributes), 0);
  EXPECT_NE(attributes.device_cap_flags & IBV_DEVICE_XRC, 0u);
}

TEST_F(Xrc, OneReceivingQueuePairServesTwoSharedQueues) {
  ibv_xrcd* const xrcd = open_domain();
  ASSERT_NE(xrcd, nullptr);
  {
    Side sender(pd_, IBV_QPT_XRC_SEND);
    Side memory(pd_, IBV_QPT_UC);  // for its buffer
    ibv_qp* const receiver = create_receiver(xrcd);
    ASSERT_NE(receiver, nullptr);
    EXPECT_EQ(receiver->pd, nullptr);
    connect(sender.qp, receiver->qp_num);
    connect(receiver, sender.qp->qp_num);
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(receiver, &attributes, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(attributes.dest_qp_num, sender.qp->qp_num);
    sender.fill(3);
    for (std::uint64_t i = 0; i < 2; ++i) {
      ibv_cq* const cq = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
      ibv_srq* const srq = create_srq(xrcd, cq);
      ASSERT_NE(srq, nullptr);
      std::uint32_t number = 0;
      ASSERT_EQ(ibv_get_srq_num(srq, &number), 0);
      ASSERT_EQ(post(srq, memory.sge(i * 8192, 5000), 40 + i), 0);
      ASSERT_EQ(sender.post_send(1, IBV_WR_SEND_WITH_IMM, 0, 5000,
                                 [&](ibv_send_wr& request) {
                                   request.imm_data = 0x77;
                                   request.qp_type.xrc.remote_srqn = number;
                                 }),
                0);
      EXPECT_EQ(sender.await().status, IBV_WC_SUCCESS);
      ibv_wc received{};
      while (ibv_poll_cq(cq, 1, &received) == 0) {
      }
      EXPECT_EQ(received.status, IBV_WC_SUCCESS);
      EXPECT_EQ(received.wr_id, 40 + i);
      EXPECT_EQ(received.byte_len, 5000u);
      EXPECT_EQ(received.imm_data, 0x77u);
      EXPECT_EQ(received.qp_num, receiver->qp_num);
      EXPECT_TRUE(std::equal(sender.bytes.begin(), sender.bytes.begin() + 5000,
                             memory.bytes.begin() + static_cast<std::ptrdiff_t>(i * 8192)));
      EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
      EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }
    EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(receiver), 0);
  }
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(Xrc, BuiltRequestsNameTheirQueueToo) {
  ibv_xrcd* const xrcd = open_domain();
  ibv_cq* const cq = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
  ibv_srq* const srq = create_srq(xrcd, cq);
  ibv_qp* const receiver = create_receiver(xrcd);
  ASSERT_NE(srq, nullptr);
  {
    Side memory(pd_, IBV_QPT_UC);
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_XRC_SEND;
    init.send_cq = cq;
    init.cap = {.max_send_wr = 4, .max_recv_wr = 0, .max_send_sge = 1, .max_recv_sge = 0, .max_inline_data = 0};
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd_;
    init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    ibv_qp* const sender = ibv_create_qp_ex(context_, &init);
    ASSERT_NE(sender, nullptr);
    connect(sender, receiver->qp_num);
    connect(receiver, sender->qp_num);
    std::uint32_t number = 0;
    ASSERT_EQ(ibv_get_srq_num(srq, &number), 0);
    memory.bytes[0] = 0x5A;
    ibv_qp_ex* const built = ibv_qp_to_qp_ex(sender);
    ibv_wr_start(built);
    built->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(built, memory.mr->rkey, memory.sge(100, 1).addr);
    ibv_wr_set_xrc_srqn(built, number);
    ibv_wr_set_sge(built, memory.mr->lkey, memory.sge(0, 1).addr, 1);
    ASSERT_EQ(ibv_wr_complete(built), 0);
    ibv_wc sent{};
    while (ibv_poll_cq(cq, 1, &sent) == 0) {
    }
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(memory.bytes[100], 0x5A);
    EXPECT_EQ(ibv_destroy_qp(sender), 0);
  }
  EXPECT_EQ(ibv_destroy_qp(receiver), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(Xrc, AFileIsOneDomainForAllWhoOpenIt) {
  char name[] = "/tmp/ucm_xrc_XXXXXX";
  const int fd = mkstemp(name);
  ASSERT_GE(fd, 0);
  errno = 0;
  EXPECT_EQ(open_domain(fd, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN) << "there is none yet";
  ibv_xrcd* const first = open_domain(fd, O_CREAT | O_EXCL);
  ASSERT_NE(first, nullptr);
  errno = 0;
  EXPECT_EQ(open_domain(fd, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL) << "there is one";
  const int again = open(name, O_RDONLY);
  ibv_xrcd* const second = open_domain(again, 0);
  ASSERT_NE(second, nullptr);
  ibv_qp* const receiver = create_receiver(first);
  ibv_qp* const other_handle = open_again(second, receiver->qp_num);
  EXPECT_NE(other_handle, nullptr) << "what one made is the other's, too";
  EXPECT_EQ(ibv_close_xrcd(first), 0) << "the domain goes with its last handle";
  EXPECT_EQ(ibv_close_xrcd(second), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(receiver), 0);
  EXPECT_EQ(ibv_destroy_qp(other_handle), 0);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(open_domain(fd, 0), nullptr) << "it is gone";
  close(fd);
  close(again);
  unlink(name);
}

TEST_F(Xrc, EachHandleOfAReceivingQueuePairHearsOfIt) {
  ibv_xrcd* const xrcd = open_domain();
  ibv_qp* const first = create_receiver(xrcd);
  ASSERT_NE(first, nullptr);
  ibv_qp* const second = open_again(xrcd, first->qp_num);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->qp_num, first->qp_num);
  EXPECT_EQ(second->qp_context, this);
  {
    Side sender(pd_, IBV_QPT_XRC_SEND);
    connect(sender.qp, first->qp_num);
    connect(second, sender.qp->qp_num);  // by either handle
    ibv_qp_attr attributes{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(first, &attributes, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attributes.dest_qp_num, sender.qp->qp_num);
    ASSERT_EQ(sender.post_send(1, IBV_WR_SEND, 0, 8), 0);  // names no queue
    EXPECT_EQ(sender.await().status, IBV_WC_REM_ACCESS_ERR);
    ibv_qp* heard[2] = {};
    for (ibv_qp*& who : heard) {
      ibv_async_event event{};
      ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
      EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
      who = event.element.qp;
      ibv_ack_async_event(&event);
    }
    EXPECT_TRUE(std::ranges::is_permutation(heard, std::array{first, second}));
  }
  const std::uint32_t number = first->qp_num;
  EXPECT_EQ(ibv_destroy_qp(first), 0);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(second, &attributes, IBV_QP_STATE, &init), 0) << "the other handle still has it";
  EXPECT_EQ(ibv_destroy_qp(second), 0);
  errno = 0;
  EXPECT_EQ(open_again(xrcd, number), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(Xrc, WhatIsMissingOrOfTheOtherKindIsRefused) {
  const auto refused = [](const void* made, int error) {
    EXPECT_EQ(made, nullptr);
    EXPECT_EQ(errno, error);
    errno = 0;
  };
  errno = 0;
  ibv_xrcd_init_attr incomplete{.comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1, .oflags = O_CREAT};
  refused(ibv_open_xrcd(context_, &incomplete), EINVAL);
  ibv_xrcd_init_attr unknown{.comp_mask = 0x100, .fd = -1, .oflags = O_CREAT};
  refused(ibv_open_xrcd(context_, &unknown), EOPNOTSUPP);
  refused(open_domain(1'000'000), EBADF);

  ibv_xrcd* const xrcd = open_domain();
  ibv_cq* const cq = ibv_create_cq(context_, 1, nullptr, nullptr, 0);
  ibv_srq_init_attr_ex no_queue{};
  no_queue.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  no_queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD;
  no_queue.srq_type = IBV_SRQT_XRC;
  no_queue.pd = pd_;
  no_queue.xrcd = xrcd;
  refused(ibv_create_srq_ex(context_, &no_queue), EINVAL);

  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  refused(ibv_create_qp(pd_, &init), EINVAL);
  init.qp_type = IBV_QPT_XRC_SEND;
  refused(ibv_create_qp(pd_, &init), EINVAL);

  ibv_srq* const xrc_srq = create_srq(xrcd, cq);
  ibv_qp_init_attr rc{};
  rc.qp_type = IBV_QPT_RC;
  rc.send_cq = rc.recv_cq = cq;
  rc.srq = xrc_srq;
  refused(ibv_create_qp(pd_, &rc), EINVAL);
  ibv_srq_init_attr plain_init{};
  plain_init.attr = {.max_wr = 1, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const plain = ibv_create_srq(pd_, &plain_init);
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(plain, &number), EINVAL) << "nobody can name it";
  EXPECT_EQ(ibv_destroy_srq(plain), 0);
  EXPECT_EQ(ibv_destroy_srq(xrc_srq), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace
}  // namespace ucm::testing
