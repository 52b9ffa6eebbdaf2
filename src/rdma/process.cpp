#include "rdma/process.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <iterator>

#include "wire/address.h"

namespace ucm::rdma {
namespace {

constexpr std::uint8_t kDevicePort = 1;

std::atomic<unsigned> generation{0};

void on_fork_in_child() { generation.fetch_add(1, std::memory_order_relaxed); }

std::uint8_t depth_limit(int device_limit) { return static_cast<std::uint8_t>(std::clamp(device_limit, 0, 255)); }

wire::IpAddress address_of(const ibv_gid& gid) {
  wire::IpAddress address;
  std::copy(std::begin(gid.raw), std::end(gid.raw), address.bytes.begin());
  return address;
}

}  // namespace

unsigned fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, on_fork_in_child);
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

Result<std::shared_ptr<client::Session>> process_session() {
  auto session = client::Session::get();
  if (session) return session;
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) std::fprintf(stderr, "ucm: %s\n", session.error().message.c_str());
  return fail(ENODEV, session.error().message);
}

Device::Device(std::string device_name, ibv_context* opened, ibv_pd* shared_pd, const ibv_device_attr& attributes)
    : name(std::move(device_name)),
      verbs(opened),
      pd(shared_pd),
      responder_resources_max(depth_limit(attributes.max_qp_rd_atom)),
      initiator_depth_max(depth_limit(attributes.max_qp_init_rd_atom)) {}

Result<ibv_xrcd*> Device::xrc_domain() {
  const std::lock_guard lock(mutex_);
  if (xrc_domain_ != nullptr) return xrc_domain_;
  ibv_xrcd_init_attr attributes{};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = -1;
  attributes.oflags = O_CREAT;
  xrc_domain_ = ibv_open_xrcd(verbs, &attributes);
  if (xrc_domain_ == nullptr) return fail(errno, "cannot open an XRC domain");
  return xrc_domain_;
}

bool Device::has_gid(std::uint32_t index, const ibv_gid& gid) const {
  ibv_gid_entry entry{};
  if (ibv_query_gid_ex(verbs, kDevicePort, index, &entry, 0) != 0 || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
    return false;
  // The loopback device lists one address of 127.0.0.0/8 and has them all.
  return address_of(entry.gid).is_same_host(address_of(gid));
}

Result<std::uint8_t> Device::gid_index(const ibv_gid& gid) {
  constexpr int kIndexMax = 255;  // ibv_global_route.sgid_index has eight bits
  const std::lock_guard lock(mutex_);
  if (has_gid(last_index_, gid)) return last_index_;
  ibv_port_attr port{};
  if (const int error = ibv_query_port(verbs, kDevicePort, &port); error != 0) {
    return fail(error, "cannot query port 1 of " + name);
  }
  const int count = std::min(port.gid_tbl_len, kIndexMax + 1);
  for (int index = 0; index < count; ++index) {
    if (!has_gid(static_cast<std::uint32_t>(index), gid)) continue;
    last_index_ = static_cast<std::uint8_t>(index);
    return last_index_;
  }
  return fail(EADDRNOTAVAIL, name + " has no RoCE v2 GID for the local address");
}

Devices& Devices::instance() {
  // Never destroyed: threads of the program may still wait for events while it exits.
  static Devices& devices = *new Devices;
  return devices;
}

Device* Devices::find(std::uint32_t ifindex) const {
  for (const Entry& entry : entries_) {
    if (entry.ifindex == ifindex) return entry.device.get();
  }
  return nullptr;
}

void Devices::forget_after_fork() {
  if (generation_ == fork_generation()) return;
  generation_ = fork_generation();
  // The parent's devices: closing them here would disturb it.
  for (Entry& entry : entries_) static_cast<void>(entry.device.release());
  entries_.clear();
}

Result<Device*> Devices::open(std::uint32_t ifindex, const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return fail(ENODEV, "the verbs library has no devices; is UCM's libibverbs.so.1 in use?");
  ibv_context* verbs = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) verbs = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  if (verbs == nullptr) return fail(ENODEV, "the verbs library cannot open a device named " + name);
  ibv_pd* pd = ibv_alloc_pd(verbs);
  ibv_device_attr attributes{};
  if (pd == nullptr || ibv_query_device(verbs, &attributes) != 0) {
    if (pd != nullptr) ibv_dealloc_pd(pd);
    ibv_close_device(verbs);
    return fail(ENODEV, "cannot set up the device " + name);
  }
  entries_.push_back({ifindex, std::make_unique<Device>(name, verbs, pd, attributes)});
  return entries_.back().device.get();
}

Result<Device*> Devices::by_ifindex(std::uint32_t ifindex) {
  const std::lock_guard lock(mutex_);
  forget_after_fork();
  if (Device* device = find(ifindex)) return device;
  auto session = process_session();
  if (!session) return tl::unexpected(session.error());
  auto present = (*session)->devices();
  if (!present) return tl::unexpected(present.error());
  for (const host::Device& candidate : *present) {
    if (candidate.ifindex == ifindex) return open(ifindex, "ucm_" + candidate.interface_name);
  }
  return fail(ENODEV, "the node has no device for interface index " + std::to_string(ifindex));
}

Result<std::vector<Device*>> Devices::all() {
  const std::lock_guard lock(mutex_);
  forget_after_fork();
  auto session = process_session();
  if (!session) return tl::unexpected(session.error());
  auto present = (*session)->devices();
  if (!present) return tl::unexpected(present.error());
  std::vector<Device*> devices;
  for (const host::Device& candidate : *present) {
    Device* device = find(candidate.ifindex);
    if (device == nullptr) device = open(candidate.ifindex, "ucm_" + candidate.interface_name).value_or(nullptr);
    if (device != nullptr) devices.push_back(device);
  }
  if (devices.empty()) return fail(ENODEV, "no RDMA device of the node can be opened");
  return devices;
}

}  // namespace ucm::rdma
