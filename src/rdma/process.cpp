#include "rdma/process.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

#include "kernel/descriptor.h"
#include "wire/address.h"

namespace ucm::rdma {
namespace {

constexpr std::uint8_t kDevicePort = 1;

std::atomic<unsigned> generation{0};

// Whatever a thread of the parent was doing with the devices, and their lock, is forgotten with them.
void on_fork_in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);
  std::construct_at(&Devices::instance());
}

// As the library is loaded: a child of a fork in the middle of it would wait for its end for ever.
[[gnu::constructor]] void handle_forks() {
  Devices::instance();
  pthread_atfork(nullptr, nullptr, on_fork_in_child);
}

std::uint8_t depth_limit(int device_limit) { return static_cast<std::uint8_t>(std::clamp(device_limit, 0, 255)); }

std::string name_of(const host::Device& device) { return "ucm_" + device.interface_name; }

std::uint64_t key_of(ibv_device* device, bool by_index) {
  return by_index ? static_cast<std::uint64_t>(ibv_get_device_index(device)) : ibv_get_device_guid(device);
}

void warn_once(const Error& error) {
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) std::fprintf(stderr, "ucm: %s; it is not used\n", error.message.c_str());
}

// The devices of the verbs library while it exists.
class DeviceList {
 public:
  DeviceList() : list_(ibv_get_device_list(&count_)) {}
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  std::span<ibv_device* const> devices() const {
    return {list_, list_ != nullptr ? static_cast<std::size_t>(count_) : 0};
  }

 private:
  int count_ = 0;
  ibv_device** const list_;
};

wire::IpAddress address_of(const ibv_gid& gid) {
  wire::IpAddress address;
  std::copy(std::begin(gid.raw), std::end(gid.raw), address.bytes.begin());
  return address;
}

}  // namespace

unsigned fork_generation() { return generation.load(std::memory_order_relaxed); }

Backend backend() {
  static const Backend chosen = [] {
    const char* device = std::getenv("UCM_DEVICE");
    return device != nullptr && std::string_view(device) == "verbs" ? Backend::kKernel : Backend::kNode;
  }();
  return chosen;
}

Result<std::shared_ptr<client::Session>> process_session() {
  auto session = client::Session::get();
  if (session) return session;
  static std::atomic<bool> told{false};
  if (!told.exchange(true)) std::fprintf(stderr, "ucm: %s\n", session.error().message.c_str());
  return fail(ENODEV, session.error().message);
}

Result<void> backend_present() {
  if (backend() == Backend::kKernel) {
    const auto opened = kernel::open_rdma_cm();
    return opened ? Result<void>{} : tl::unexpected(opened.error());
  }
  const auto session = process_session();
  return session ? Result<void>{} : tl::unexpected(session.error());
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

Device* Devices::find(Key key) const {
  for (const Entry& entry : entries_) {
    if (entry.key == key) return entry.device.get();
  }
  return nullptr;
}

Result<Device*> Devices::set_up(Key key, ibv_device* device) {
  const std::string name = ibv_get_device_name(device);
  errno = 0;
  ibv_context* verbs = ibv_open_device(device);
  if (verbs == nullptr) {
    const int error = errno != 0 ? errno : ENODEV;
    return fail(error, "the device " + name + " cannot be opened: " + std::generic_category().message(error));
  }
  ibv_pd* pd = ibv_alloc_pd(verbs);
  ibv_device_attr attributes{};
  if (pd == nullptr || ibv_query_device(verbs, &attributes) != 0) {
    if (pd != nullptr) ibv_dealloc_pd(pd);
    ibv_close_device(verbs);
    return fail(ENODEV, "cannot set up the device " + name);
  }
  entries_.push_back({key, std::make_unique<Device>(name, verbs, pd, attributes)});
  return entries_.back().device.get();
}

Result<Device*> Devices::open(Key key, const std::string& what, const std::function<bool(ibv_device*)>& is_it) {
  if (Device* device = find(key)) return device;
  const DeviceList list;
  std::string seen;
  for (ibv_device* device : list.devices()) {
    if (is_it(device)) return set_up(key, device);
    seen += std::string(seen.empty() ? "" : ", ") + ibv_get_device_name(device);
  }
  return fail(ENODEV, "the verbs library has no " + what + "; it has: " + (seen.empty() ? "none" : seen));
}

Result<Device*> Devices::by_ifindex(std::uint32_t ifindex) {
  if (backend() == Backend::kKernel) return fail(ENODEV, "the kernel's devices are not found by interface");
  const std::lock_guard lock(mutex_);
  if (Device* device = find(ifindex)) return device;
  auto session = process_session();
  if (!session) return tl::unexpected(session.error());
  auto present = (*session)->devices();
  if (!present) return tl::unexpected(present.error());
  for (const host::Device& candidate : *present) {
    if (candidate.ifindex != ifindex) continue;
    const std::string name = name_of(candidate);
    return open(ifindex, name, [&](ibv_device* device) { return name == ibv_get_device_name(device); });
  }
  return fail(ENODEV, "the node has no device for interface index " + std::to_string(ifindex));
}

Result<Device*> Devices::by_path(const ipc::CmDevicePath& path) {
  std::uint64_t guid = 0;
  std::memcpy(&guid, path.guid.data(), sizeof guid);
  const bool by_index = path.index != ipc::kUnknownDeviceIndex;
  const Key key = by_index ? path.index : guid;
  const std::string what = by_index ? "device of index " + std::to_string(path.index) : "device of the kernel's GUID";
  const std::lock_guard lock(mutex_);
  return open(key, what, [&](ibv_device* device) { return key_of(device, by_index) == key; });
}

Result<std::vector<Device*>> Devices::all() {
  const std::lock_guard lock(mutex_);
  auto devices = backend() == Backend::kKernel ? all_of_kernel() : all_of_node();
  if (devices && devices->empty()) return fail(ENODEV, "there is no RDMA device that can be opened");
  return devices;
}

Result<std::vector<Device*>> Devices::all_of_node() {
  auto session = process_session();
  if (!session) return tl::unexpected(session.error());
  auto present = (*session)->devices();
  if (!present) return tl::unexpected(present.error());
  std::vector<Device*> devices;
  for (const host::Device& candidate : *present) {
    const std::string name = name_of(candidate);
    const auto is_it = [&](ibv_device* device) { return name == ibv_get_device_name(device); };
    if (const auto device = open(candidate.ifindex, name, is_it)) devices.push_back(*device);
  }
  return devices;
}

Result<std::vector<Device*>> Devices::all_of_kernel() {
  const DeviceList list;
  std::vector<Device*> devices;
  for (ibv_device* candidate : list.devices()) {
    const Key key = key_of(candidate, ibv_get_device_index(candidate) >= 0);
    Device* const known = find(key);
    const auto device = known != nullptr ? Result<Device*>(known) : set_up(key, candidate);
    if (device) {
      devices.push_back(*device);
    } else {
      warn_once(device.error());
    }
  }
  return devices;
}

}  // namespace ucm::rdma
