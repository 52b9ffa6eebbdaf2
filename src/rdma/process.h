// What one process has once: its session with the node, and the RDMA devices it has opened.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/session.h"

namespace ucm::rdma {

// Who makes the connections of this process (docs/devices.md).
enum class Backend : std::uint8_t {
  kNode,    // ucmd, on its software devices
  kKernel,  // the kernel's rdma_cm, on the devices of the system's libibverbs: UCM_DEVICE=verbs in the environment
};
Backend backend();

// The session of this process. Without a node: ENODEV, and the first time one line on stderr that says what to do.
Result<std::shared_ptr<client::Session>> process_session();

// Whoever makes the connections is there. ENODEV says what is missing.
Result<void> backend_present();

// Changes in a forked child: what was opened before belongs to the parent.
unsigned fork_generation();

// One open RDMA device, shared by every ID of the process and never closed.
class Device {
 public:
  Device(std::string device_name, ibv_context* opened, ibv_pd* shared_pd, const ibv_device_attr& attributes);

  // Index of the RoCEv2 GID `gid` on port 1; EADDRNOTAVAIL when the device does not have it.
  Result<std::uint8_t> gid_index(const ibv_gid& gid);
  // The XRC domain of IDs that name none, opened on first use.
  Result<ibv_xrcd*> xrc_domain();

  const std::string name;
  ibv_context* const verbs;
  ibv_pd* const pd;
  const std::uint8_t responder_resources_max;
  const std::uint8_t initiator_depth_max;

 private:
  bool has_gid(std::uint32_t index, const ibv_gid& gid) const;

  std::mutex mutex_;
  ibv_xrcd* xrc_domain_ = nullptr;
  std::uint8_t last_index_ = 0;  // the one asked for last is likely asked for again
};

// A forked child begins with none: those of its parent are left as they are.
class Devices {
 public:
  static Devices& instance();

  // The device of a network interface of the node, and the one that the kernel names, opened on first use. ENODEV names
  // what is missing; nothing is remembered of a failure, the next call tries again.
  Result<Device*> by_ifindex(std::uint32_t ifindex);
  Result<Device*> by_path(const ipc::CmDevicePath& path);

  // All devices that can be opened: the node's, or the kernel's.
  Result<std::vector<Device*>> all();

 private:
  // An interface index; of the kernel's devices the device's index, or its GUID where an old kernel has no indices.
  using Key = std::uint64_t;
  struct Entry {
    Key key;
    std::unique_ptr<Device> device;
  };

  Result<std::vector<Device*>> all_of_node();
  Result<std::vector<Device*>> all_of_kernel();
  Result<Device*> open(Key key, const std::string& what, const std::function<bool(ibv_device*)>& is_it);
  Result<Device*> set_up(Key key, ibv_device* device);
  Device* find(Key key) const;

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace ucm::rdma
