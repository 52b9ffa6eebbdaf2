// What a node needs to know of the host it runs on: devices, routes, neighbours, the rules for service ports. An
// interface, so that tests can put a host of their own in place of the kernel (NetlinkHost). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "host/device.h"
#include "wire/address.h"

namespace ucm::host {

struct RouteQuery {
  wire::IpAddress destination;
  std::optional<wire::IpAddress> source = std::nullopt;
  std::uint32_t ifindex = 0;  // of a link-local destination or source; else 0
};

struct Route {
  std::uint32_t ifindex = 0;    // where packets leave; for a destination on this host, the interface that has `source`
  wire::IpAddress source;       // as asked for, or the one the host prefers
  wire::IpAddress next_hop;     // the destination itself when it is on the link
  bool needs_neighbor = false;  // false: on this host, multicast, or a link without neighbours
};

enum class NeighborState : std::uint8_t {
  kUsable,
  kPending,     // the kernel is asking
  kUnresolved,  // nobody asked, or nobody answered
};

// The system's settings for service ports.
struct PortRules {
  std::uint16_t ephemeral_first = 32768;
  std::uint16_t ephemeral_last = 60999;
  std::uint16_t unprivileged_first = 1024;  // lower ones need a capability
  bool ipv6_only = false;                   // what an IPv6 wildcard means unless the program says
};

class Host {
 public:
  struct Observer {
    std::function<void()> devices_changed = nullptr;
    std::function<void(std::uint32_t ifindex, const wire::IpAddress& neighbor)> neighbor_changed = nullptr;
  };

  virtual ~Host() = default;

  // In interface order. Valid until devices_changed.
  virtual const std::vector<Device>& devices() const = 0;
  // ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL (the source is not on this host), EINVAL (broadcast, or families differ).
  virtual Result<Route> find_route(const RouteQuery& query) = 0;
  virtual NeighborState neighbor_state(std::uint32_t ifindex, const wire::IpAddress& address) = 0;
  // Makes the kernel ask for the neighbour; returns at once.
  virtual void resolve_neighbor(std::uint32_t ifindex, const wire::IpAddress& address) = 0;
  virtual PortRules port_rules() const = 0;

  void observe(Observer observer) { observer_ = std::move(observer); }

  // nullptr when there is none.
  const Device* find_device(std::uint32_t ifindex) const;
  // The device that has the address. `ifindex` tells equal link-local addresses apart; every address of 127.0.0.0/8 is
  // the loopback device's.
  const Device* find_device_of(const wire::IpAddress& address, std::uint32_t ifindex) const;

 protected:
  Observer observer_;
};

}  // namespace ucm::host
