// What `ucm status` shows, as JSON.
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/address_text.h"
#include "daemon/server.h"
#include "daemon/server_types.h"
#include "daemon/stats.h"
#include "net/socket_address.h"

namespace ucm::daemon {
namespace {

using nlohmann::json;

std::string host_text(const ipc::SocketAddress& address) {
  std::string text = net::to_string(wire::IpAddress{address.address});
  if (address.scope_id != 0) text += "%" + std::to_string(address.scope_id);
  return text;
}

json device_status(const host::Device& device) {
  json addresses = json::array();
  for (const auto& address : device.addresses) {
    addresses.push_back(net::to_string(address.address));
  }
  return {{"name", "ucm_" + device.interface_name},
          {"interface", device.interface_name},
          {"ifindex", device.ifindex},
          {"mtu", device.mtu},
          {"running", device.running},
          {"addresses", addresses}};
}

json counters_status(const ServerCounters& c) {
  return {{"sessions_accepted", c.sessions_accepted},
          {"sessions_refused", c.sessions_refused},
          {"sessions_violated", c.sessions_violated},
          {"observers_dropped", c.observers_dropped},
          {"commands", c.commands},
          {"events", c.events},
          {"events_waited", c.events_waited},
          {"events_without_link", c.events_without_link},
          {"packets", c.packets},
          {"packets_no_owner", c.packets_no_owner},
          {"packets_no_link", c.packets_no_link},
          {"packets_ring_full", c.packets_ring_full},
          {"packets_too_long", c.packets_too_long},
          {"packets_unknown_source_port", c.packets_unknown_source_port},
          {"packets_foreign_peer", c.packets_foreign_peer}};
}

}  // namespace

std::string text_of(const ipc::SocketAddress& address) {
  const std::string host = address.family == 6 ? "[" + host_text(address) + "]" : host_text(address);
  return host + ":" + std::to_string(address.port);
}

nlohmann::json Server::stats() const {
  json stats = json::object();
  if (const node::FlightRecorder* const recorder = node_->recorder()) stats = recorder_stats(*recorder);
  // Together they are what a leak would show in.
  stats["held"]["qpns"] = qpns_.in_use();
  stats["held"]["traces"] =
      std::ranges::count_if(observers_, [this](std::uint32_t id) { return trace_of(id) != nullptr; });
  for (const auto& [name, value] : node_->held()) stats["held"][name] = value;
  stats["counters"] = counters_status(counters_);
  for (const node::Resource resource :
       {node::Resource::kPrograms, node::Resource::kChannels, node::Resource::kQueuePairs}) {
    const std::string name(node::kResourceNames[static_cast<std::size_t>(resource)]);
    stats["counters"]["refused_" + name] = quotas_.refused(resource);
  }
  for (const auto& [name, value] : node_->counters()) stats["counters"][name] = value;
  return stats;
}

std::string Server::status_json(const Viewer& viewer) const {
  const auto visible = [&](node::SessionId id) {
    const auto session = sessions_.find(id);
    return session == sessions_.end() ? viewer.sees_all : viewer.sees(session->second->peer.uid);
  };
  json status;
  status["daemon"] = {{"version", UCM_VERSION},
                      {"pid", getpid()},
                      {"uid", geteuid()},
                      {"uptime_s", (loop_.now() - started_) / kNanosecondsPerSecond},
                      {"socket", options_.socket_name},
                      {"node_instance", options_.node_instance}};
  status["devices"] = json::array();
  for (const auto& device : node_->devices()) status["devices"].push_back(device_status(device));

  status["sessions"] = json::array();
  for (const auto& [id, session] : sessions_) {
    if (session->role != ipc::Role::kProgram || session->doomed || !visible(id)) continue;
    status["sessions"].push_back({{"id", id},
                                  {"pid", session->peer.pid},
                                  {"uid", session->peer.uid},
                                  {"program", session->program_name},
                                  {"event_channels", session->links.size()},
                                  {"qpns", session->qpn_blocks * ipc::kQpnBlockSize}});
  }
  status["listeners"] = json::array();
  for (const auto& listener : node_->listeners()) {
    if (!visible(listener.session)) continue;
    status["listeners"].push_back({{"session", listener.session},
                                   {"local", text_of(listener.local)},
                                   {"port_space", listener.port_space},
                                   {"backlog", listener.backlog},
                                   {"pending", listener.pending}});
  }
  status["connections"] = json::array();
  for (const auto& connection : node_->connections()) {
    if (!visible(connection.session)) continue;
    status["connections"].push_back({{"session", connection.session},
                                     {"local", text_of(connection.local)},
                                     {"remote", text_of(connection.remote)},
                                     {"qpn", connection.qpn},
                                     {"peer_qpn", connection.peer_qpn},
                                     {"state", connection.state}});
  }
  json numbers = stats();
  status["held"] = std::move(numbers["held"]);
  status["counters"] = std::move(numbers["counters"]);
  // Program names may hold any bytes.
  return status.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ucm::daemon
