// Which attributes each type of QP is given on its way to RTS. The masks are those of Linux.
#include "rdma/qp_attributes.h"

#include <gtest/gtest.h>

namespace ucm::rdma {
namespace {

constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRts = IBV_QP_STATE | IBV_QP_SQ_PSN;
constexpr int kAnswers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kAsks = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

TEST(QpAttributes, EachTypeIsGivenWhatItHas) {
  struct Row {
    ibv_qp_type type;
    int rtr;
    int rts;
  };
  constexpr Row kRows[] = {{IBV_QPT_RC, kRtr | kAnswers, kRts | kAsks},
                           {IBV_QPT_UC, kRtr, kRts},
                           {IBV_QPT_XRC_SEND, kRtr, kRts | kAsks},
                           {IBV_QPT_XRC_RECV, kRtr | kAnswers, kRts | IBV_QP_TIMEOUT}};
  for (const Row& row : kRows) {
    ConnectionFacts facts;
    facts.phase = Phase::kRequested;
    facts.qp.dest_known = 1;
    facts.qp.dest_qpn = 0x12;
    facts.qp_type = row.type;
    ibv_qp_attr attributes{};
    EXPECT_EQ(qp_attributes_for(facts, IBV_QPS_RTR, attributes), row.rtr) << row.type;
    EXPECT_EQ(attributes.dest_qp_num, 0x12u);
    EXPECT_EQ(qp_attributes_for(facts, IBV_QPS_RTS, attributes), row.rts) << row.type;
  }
}

}  // namespace
}  // namespace ucm::rdma
