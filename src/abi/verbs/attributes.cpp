// What a device tells about itself: the limits of the engine behind it and the state of its network interface.
#include <endian.h>

#include <algorithm>
#include <bit>
#include <cstdio>

#include "abi/verbs/objects.h"
#include "ipc/limits.h"

namespace ucm::abi::verbs {

namespace {

// Of software devices; hardware vendors have real ones.
constexpr std::uint32_t kVendorId = 0xffffff;
constexpr std::uint32_t kVendorPart = 1;

// Bounds on how many objects a program may expect. Only memory limits the engine; these are what it is sized for.
constexpr int kQpsMax = 1 << 16;
constexpr int kCqsMax = 1 << 16;
constexpr int kMrsMax = 1 << 20;
constexpr int kPdsMax = 1 << 16;
constexpr int kAhsMax = 1 << 20;
constexpr int kSrqsMax = 1 << 16;

// Codes of the InfiniBand port attributes.
constexpr std::uint8_t kWidth4x = 2;
constexpr std::uint8_t kSpeedSdr = 1;
constexpr std::uint8_t kPhysicalLinkUp = 5;
constexpr std::uint8_t kPhysicalDisabled = 3;
constexpr std::uint8_t kGrhRequired = 1;

}  // namespace

ibv_device_attr device_attributes(const host::Device& device) {
  ibv_device_attr attributes{};
  std::snprintf(attributes.fw_ver, sizeof attributes.fw_ver, "%s", UCM_VERSION);
  attributes.node_guid = htobe64(device.guid);
  attributes.sys_image_guid = htobe64(device.guid);
  attributes.max_mr_size = UINT64_MAX;
  attributes.page_size_cap = ~std::uint64_t{4095};
  attributes.vendor_id = kVendorId;
  attributes.vendor_part_id = kVendorPart;
  attributes.max_qp = kQpsMax;
  attributes.max_qp_wr = roce::kWorkRequestsMax;
  attributes.device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_SYS_IMAGE_GUID |
                                IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW |
                                IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC;
  attributes.max_sge = roce::kSgeMax;
  attributes.max_sge_rd = roce::kSgeMax;
  attributes.max_cq = kCqsMax;
  attributes.max_cqe = roce::kCqeMax;
  attributes.max_mr = kMrsMax;
  attributes.max_mw = kMrsMax;
  attributes.max_pd = kPdsMax;
  attributes.max_qp_rd_atom = roce::kRdAtomicMax;
  attributes.max_qp_init_rd_atom = roce::kRdAtomicMax;
  attributes.max_res_rd_atom = kQpsMax * roce::kRdAtomicMax;
  attributes.atomic_cap = IBV_ATOMIC_HCA;
  attributes.max_ah = kAhsMax;
  attributes.max_mcast_grp = ipc::kMulticastGroupsMax;
  attributes.max_mcast_qp_attach = ipc::kGroupJoinsPerSessionMax;
  attributes.max_total_mcast_qp_attach = ipc::kGroupJoinsPerSessionMax;
  attributes.max_srq = kSrqsMax;
  attributes.max_srq_wr = roce::kWorkRequestsMax;
  attributes.max_srq_sge = roce::kSgeMax;
  attributes.max_pkeys = 1;
  attributes.phys_port_cnt = 1;
  return attributes;
}

ibv_port_attr port_attributes(const host::Device& device) {
  ibv_port_attr attributes{};
  attributes.state = device.running ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes.phys_state = device.running ? kPhysicalLinkUp : kPhysicalDisabled;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = static_cast<ibv_mtu>(std::max<int>(host::path_mtu_of(device.mtu), IBV_MTU_256));
  const auto addresses = static_cast<unsigned>(device.addresses.size());
  attributes.gid_tbl_len = std::max(static_cast<int>(std::bit_ceil(addresses)), kGidTableLengthMin);
  attributes.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attributes.max_msg_sz = roce::kMessageMax;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.active_width = kWidth4x;
  attributes.active_speed = kSpeedSdr;
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  attributes.flags = kGrhRequired;
  return attributes;
}

}  // namespace ucm::abi::verbs
