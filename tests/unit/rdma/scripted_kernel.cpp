#include "unit/rdma/scripted_kernel.h"

#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "unit/kernel/fake_kernel.h"

namespace ucm::test {
namespace {

FakeKernel& kernel() { return FakeKernel::instance(); }

ib_uverbs_ah_attr peer() {
  ib_uverbs_ah_attr handle{};
  handle.grh.dgid[15] = 2;
  handle.grh.sgid_index = 1;
  handle.dlid = 0x12;
  handle.is_global = 1;
  handle.port_num = 2;
  return handle;
}

}  // namespace

void ScriptedKernel::reset() {
  FakeKernel::reset();
  rdma_ucm_query_route_resp& route = kernel().route;
  route.node_guid = 1;
  route.ibdev_index = 1;
  route.port_num = 2;
  route.num_paths = 1;
  route.src_addr = stored_address("10.0.0.1", 40000);
  route.dst_addr = stored_address("10.0.0.2", 7174);
  route.ib_route[0].sgid[15] = 1;
  route.ib_route[0].dgid[15] = 2;
  route.ib_route[0].dlid = htons(0x12);
  ib_uverbs_qp_attr& attributes = kernel().qp_attributes;
  attributes.qp_attr_mask = 0x12379;
  attributes.dest_qp_num = 0xABC;
  attributes.max_dest_rd_atomic = 9;
  attributes.max_rd_atomic = 9;
  attributes.ah_attr = peer();
}

void ScriptedKernel::set_device_index(std::uint32_t index) { kernel().route.ibdev_index = index; }

void ScriptedKernel::tell(KernelEvent event) {
  rdma_ucm_event_resp told{};
  told.uid = kernel().last_body<rdma_ucm_create_id>(RDMA_USER_CM_CMD_CREATE_ID).uid;
  switch (event) {
    case kAddressResolved:
      told.event = 0;
      break;
    case kRouteResolved:
      told.event = 2;
      break;
    case kConnectRequest:
      told.event = 4;
      told.id = 99;
      told.param.conn.responder_resources = 4;
      told.param.conn.initiator_depth = 4;
      break;
    case kConnectResponse:
      told.event = 5;
      told.param.conn.private_data_len = 4;
      break;
    case kDatagramAnswer:
      told.event = 9;
      told.param.ud.qp_num = 0x77;
      told.param.ud.ah_attr = peer();
      break;
    case kGroupJoined:
    case kGroupRefused:
      told.event = event == kGroupJoined ? 12 : 13;
      told.status = event == kGroupJoined ? 0 : static_cast<std::uint32_t>(-EINVAL);
      told.uid = kernel().last_body<rdma_ucm_join_mcast>(RDMA_USER_CM_CMD_JOIN_MCAST).uid;
      told.param.ud.qp_num = 0xFFFFFF;
      told.param.ud.ah_attr = peer();
      break;
    case kTimewaitExit:
      told.event = 15;
      break;
  }
  kernel().push(0, told);
}

bool ScriptedKernel::established() {
  return kernel().last_body<rdma_ucm_accept>(RDMA_USER_CM_CMD_ACCEPT).conn_param.valid == 0;
}

bool ScriptedKernel::left_group() { return kernel().count(RDMA_USER_CM_CMD_LEAVE_MCAST) == 1; }

}  // namespace ucm::test
