// Two queue pairs of this process, joined over the loopback interface: what most verbs tests need.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi/verbs/own_network.h"

namespace ucm::testing {

inline constexpr std::uint32_t kQkey = 0x11111111;

// Each test is a process of its own; within one, the network is entered once.
class VerbsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const bool entered = enter_own_network();
    network_ = entered;
  }
  void SetUp() override {
    if (!network_) GTEST_SKIP() << "this system allows no network namespaces";
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    ASSERT_EQ(count, 1);
    device_ = list[0];
    context_ = ibv_open_device(device_);
    ibv_free_device_list(list);
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override {
    if (pd_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    }
    if (context_ != nullptr) {
      EXPECT_EQ(ibv_close_device(context_), 0);
    }
  }

  static inline bool network_ = false;
  ibv_device* device_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

// One side: a queue pair with its completion queue and a registered buffer.
class Side {
 public:
  static constexpr std::size_t kBytes = 1 << 20;

  Side(ibv_pd* pd, ibv_qp_type type, ibv_comp_channel* channel = nullptr, ibv_srq* srq = nullptr) : bytes(kBytes) {
    cq = ibv_create_cq(pd->context, 256, this, channel, 0);
    EXPECT_NE(cq, nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 128};
    init.qp_type = type;
    qp = ibv_create_qp(pd, &init);
    EXPECT_NE(qp, nullptr);
    const int access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mr = ibv_reg_mr(pd, bytes.data(), bytes.size(), access);
    EXPECT_NE(mr, nullptr);
  }
  ~Side() {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  ibv_sge sge(std::size_t offset, std::size_t length) const {
    return {.addr = reinterpret_cast<std::uintptr_t>(bytes.data()) + offset,
            .length = static_cast<std::uint32_t>(length),
            .lkey = mr->lkey};
  }
  int post_recv(std::uint64_t id, std::size_t offset, std::size_t length) {
    ibv_sge element = sge(offset, length);
    ibv_recv_wr request{.wr_id = id, .next = nullptr, .sg_list = &element, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp, &request, &bad);
  }
  // A signaled request over [offset, offset + length) of the own buffer; `change` adds what else it needs.
  template <class Change>
  int post_send(std::uint64_t id, ibv_wr_opcode opcode, std::size_t offset, std::size_t length, Change change) {
    ibv_sge element = sge(offset, length);
    ibv_send_wr request{};
    request.wr_id = id;
    request.sg_list = &element;
    request.num_sge = 1;
    request.opcode = opcode;
    request.send_flags = IBV_SEND_SIGNALED;
    change(request);
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &request, &bad);
  }
  int post_send(std::uint64_t id, ibv_wr_opcode opcode, std::size_t offset, std::size_t length) {
    return post_send(id, opcode, offset, length, [](ibv_send_wr&) {});
  }
  // A one-sided request against `offset` of the other side's buffer.
  int post_remote(std::uint64_t id, ibv_wr_opcode opcode, std::size_t length, const Side& other) {
    return post_send(id, opcode, 0, length, [&](ibv_send_wr& request) {
      request.wr.rdma.remote_addr = other.sge(0, 0).addr;
      request.wr.rdma.rkey = other.mr->rkey;
    });
  }

  // The next completion; one of status IBV_WC_GENERAL_ERR and wr_id ~0 when none comes.
  ibv_wc await() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    ibv_wc completion{};
    while (std::chrono::steady_clock::now() < end) {
      if (ibv_poll_cq(cq, 1, &completion) == 1) return completion;
    }
    completion.wr_id = ~std::uint64_t{0};
    completion.status = IBV_WC_GENERAL_ERR;
    return completion;
  }

  void fill(std::uint8_t first) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(first + i * 7 + i / 4096);
  }

  std::vector<std::uint8_t> bytes;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_mr* mr = nullptr;
};

inline ibv_ah_attr route_to(ibv_context* context, std::uint8_t gid_index) {
  ibv_ah_attr route{};
  ibv_query_gid(context, 1, gid_index, &route.grh.dgid);
  route.grh.sgid_index = gid_index;
  route.is_global = 1;
  route.port_num = 1;
  return route;
}

inline int to_init(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qkey = kQkey;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const int kind = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | kind);
}

inline void ready_for_datagrams(ibv_qp* qp) {
  ASSERT_EQ(to_init(qp), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
  attributes.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

// INIT, RTR and RTS towards `remote_qpn`; retries are for a lossy network. A queue pair of XRC ignores half of it.
inline void connect(ibv_qp* qp, std::uint32_t remote_qpn, std::uint8_t gid_index = 0) {
  ASSERT_EQ(to_init(qp), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = remote_qpn;
  attributes.rq_psn = 100;
  attributes.max_dest_rd_atomic = 4;
  attributes.min_rnr_timer = 1;
  attributes.ah_attr = route_to(qp->context, gid_index);
  ASSERT_EQ(ibv_modify_qp(qp, &attributes,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = 100;
  attributes.timeout = 10;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  attributes.max_rd_atomic = 4;
  ASSERT_EQ(ibv_modify_qp(qp, &attributes,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_MAX_QP_RD_ATOMIC),
            0);
}

inline void connect(Side& a, Side& b, std::uint8_t gid_index = 0) {
  connect(a.qp, b.qp->qp_num, gid_index);
  connect(b.qp, a.qp->qp_num, gid_index);
}

}  // namespace ucm::testing
