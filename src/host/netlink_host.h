// The host as Linux tells it over rtnetlink. Needs no privilege.
#pragma once

#include <memory>

#include "host/host.h"

namespace ucm::host {

class NetlinkHost final : public Host {
 public:
  // Reads the devices as they are now.
  static Result<std::unique_ptr<NetlinkHost>> open();
  ~NetlinkHost() override;

  const std::vector<Device>& devices() const override;
  Result<Route> find_route(const RouteQuery& query) override;
  NeighborState neighbor_state(std::uint32_t ifindex, const wire::IpAddress& address) override;
  // Sends an empty UDP datagram to the neighbour's discard port with hop limit 1: it never leaves the link.
  void resolve_neighbor(std::uint32_t ifindex, const wire::IpAddress& address) override;
  // As they were when the host was opened.
  PortRules port_rules() const override;

  // Readable when the kernel has news: call on_readable() then, which tells the observer.
  int wait_fd() const;
  void on_readable();

 private:
  struct Impl;
  explicit NetlinkHost(std::unique_ptr<Impl> impl);
  Route local_route(const RouteQuery& query, const Device& destination_device) const;
  Result<Route> remote_route(const RouteQuery& query);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ucm::host
