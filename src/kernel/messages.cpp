#include "kernel/messages.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ipc/socket_address.h"

namespace ucm::kernel {
namespace {

ipc::SocketAddress address_of(const sockaddr_in6& address) {
  sockaddr_storage storage{};
  std::memcpy(&storage, &address, sizeof address);
  return ipc::from_sockaddr(reinterpret_cast<const sockaddr&>(storage)).value_or(ipc::SocketAddress{});
}

template <class Param>
void read_private_data(const Param& param, ipc::CmConnParam& out) {
  const std::size_t size = std::min<std::size_t>(param.private_data_len, out.private_data.size());
  std::copy_n(param.private_data, size, out.private_data.begin());
  out.private_data_size = static_cast<std::uint32_t>(size);
}

}  // namespace

std::uint16_t write_address(const ipc::SocketAddress& address, __kernel_sockaddr_storage& out) {
  const sockaddr_storage storage = ipc::to_sockaddr(address);
  static_assert(sizeof storage == sizeof out);
  std::memcpy(&out, &storage, sizeof storage);
  if (address.family == 0) return 0;
  return address.family == 4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

rdma_ucm_conn_param to_kernel(const ipc::CmConnParam& param) {
  rdma_ucm_conn_param out{};
  out.qp_num = param.qp_num;
  out.srq = param.srq;
  out.responder_resources = param.responder_resources;
  out.initiator_depth = param.initiator_depth;
  out.flow_control = param.flow_control;
  out.retry_count = param.retry_count;
  out.rnr_retry_count = param.rnr_retry_count;
  const std::size_t size = std::min<std::size_t>(param.private_data_size, param.private_data.size());
  std::copy_n(param.private_data.begin(), size, out.private_data);
  out.private_data_len = static_cast<std::uint8_t>(size);
  out.valid = 1;
  return out;
}

ipc::CmConnParam from_kernel(const rdma_ucm_conn_param& param) {
  ipc::CmConnParam out;
  out.qp_num = param.qp_num;
  out.srq = param.srq;
  out.responder_resources = param.responder_resources;
  out.initiator_depth = param.initiator_depth;
  out.flow_control = param.flow_control;
  out.retry_count = param.retry_count;
  out.rnr_retry_count = param.rnr_retry_count;
  read_private_data(param, out);
  return out;
}

ipc::CmConnParam from_kernel(const rdma_ucm_ud_param& param) {
  ipc::CmConnParam out;
  out.qp_num = param.qp_num;
  out.qkey = param.qkey;
  read_private_data(param, out);
  return out;
}

void read_route(const rdma_ucm_query_route_resp& answer, ipc::CmPath& path, ipc::CmDevicePath& device) {
  path.local = address_of(answer.src_addr);
  path.remote = address_of(answer.dst_addr);
  std::memcpy(device.guid.data(), &answer.node_guid, device.guid.size());
  device.index = answer.ibdev_index;
  device.port = answer.port_num;
  // Without a path yet, the kernel fills in GIDs and P_Key of the first one.
  const ib_user_path_rec& record = answer.ib_route[0];
  std::copy(std::begin(record.sgid), std::end(record.sgid), device.sgid.begin());
  std::copy(std::begin(record.dgid), std::end(record.dgid), device.dgid.begin());
  device.slid = ntohs(record.slid);
  device.dlid = ntohs(record.dlid);
  path.flow_label = ntohl(record.flow_label);
  path.pkey = ntohs(record.pkey);
  path.mtu = static_cast<std::uint8_t>(record.mtu);
  path.traffic_class = record.traffic_class;
  path.hop_limit = record.hop_limit;
  path.sl = record.sl;
  path.packet_lifetime = record.packet_life_time;
  path.rate = record.rate;
}

void read_address_handle(const ib_uverbs_ah_attr& attributes, ipc::CmPath& path, ipc::CmDevicePath& device) {
  std::copy(std::begin(attributes.grh.dgid), std::end(attributes.grh.dgid), device.dgid.begin());
  path.flow_label = attributes.grh.flow_label;
  path.hop_limit = attributes.grh.hop_limit;
  path.traffic_class = attributes.grh.traffic_class;
  path.sl = attributes.sl;
  device.sgid_index = attributes.grh.sgid_index;
  device.dlid = attributes.dlid;
  device.src_path_bits = attributes.src_path_bits;
  device.static_rate = attributes.static_rate;
  device.is_global = attributes.is_global;
  device.port = attributes.port_num;
}

}  // namespace ucm::kernel
