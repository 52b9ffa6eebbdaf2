// What one process has once: its session with the node, and the RDMA devices it has opened.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/session.h"

namespace ucm::rdma {

// The session of this process. Without a node: ENODEV, and the first time one line on stderr that says what to do.
Result<std::shared_ptr<client::Session>> process_session();

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

class Devices {
 public:
  static Devices& instance();

  // The device of a network interface, opened on first use. ENODEV names what is missing; nothing is remembered of a
  // failure, the next call tries again.
  Result<Device*> by_ifindex(std::uint32_t ifindex);

  // All devices of the node that can be opened.
  Result<std::vector<Device*>> all();

 private:
  struct Entry {
    std::uint32_t ifindex;
    std::unique_ptr<Device> device;
  };

  Result<Device*> open(std::uint32_t ifindex, const std::string& name);
  Device* find(std::uint32_t ifindex) const;
  void forget_after_fork();

  std::mutex mutex_;
  std::vector<Entry> entries_;
  unsigned generation_ = 0;
};

}  // namespace ucm::rdma
