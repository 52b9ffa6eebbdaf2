#include "cli/status_text.h"

#include <cstdint>
#include <cstdio>
#include <map>

#include "cli/text.h"

namespace ucm::cli {
namespace {

using nlohmann::json;

// Members that are missing or of another type read as nothing: a node of another version may leave some out.
std::string text(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}
std::uint64_t number(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<std::uint64_t>() : 0;
}
json member(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() ? *it : json();
}

std::string port_space_text(std::uint64_t port_space) {
  switch (port_space) {
    case 0x0106:
      return "TCP";
    case 0x0111:
      return "UDP";
    case 0x013f:
      return "IB";
    default:
      return "space " + std::to_string(port_space);
  }
}

using Programs = std::map<std::uint64_t, std::string>;  // by session

Programs programs_of(const json& status) {
  Programs programs;
  for (const json& session : member(status, "sessions")) {
    programs[number(session, "id")] = std::to_string(number(session, "pid")) + " " + text(session, "program");
  }
  return programs;
}

std::string heading(const char* title, const json& entries) {
  return std::string(title) + (entries.empty() ? ": none\n" : "\n");
}

std::string sessions_text(const json& status) {
  const json sessions = member(status, "sessions");
  std::string out = heading("Programs", sessions);
  for (const json& session : sessions) {
    out += "  " + padded(std::to_string(number(session, "pid")) + " " + text(session, "program"), 24) + " user " +
           std::to_string(number(session, "uid")) + ", event channels " +
           std::to_string(number(session, "event_channels")) + ", QP numbers " +
           std::to_string(number(session, "qpns")) + "\n";
  }
  return out;
}

std::string listeners_text(const json& status, Programs& programs) {
  const json listeners = member(status, "listeners");
  std::string out = heading("Listeners", listeners);
  for (const json& listener : listeners) {
    out += "  " + padded(text(listener, "local"), 28) + " " + port_space_text(number(listener, "port_space")) +
           ", backlog " + std::to_string(number(listener, "backlog")) + ", pending " +
           std::to_string(number(listener, "pending")) + "  (" + programs[number(listener, "session")] + ")\n";
  }
  return out;
}

std::string connections_text(const json& status, Programs& programs) {
  const json connections = member(status, "connections");
  std::string out = heading("Connections", connections);
  for (const json& connection : connections) {
    out += "  " + padded(text(connection, "local"), 28) + " " + padded(text(connection, "remote"), 28) + " " +
           padded(text(connection, "state"), 16) + " QP " + hex(number(connection, "qpn"), 6) + " - " +
           hex(number(connection, "peer_qpn"), 6) + "  (" + programs[number(connection, "session")] + ")\n";
  }
  return out;
}

// Those that are not zero.
std::string numbers_text(const char* title, const json& numbers) {
  std::string out;
  for (const auto& [name, value] : numbers.items()) {
    if (value.is_number() && value != 0) out += "  " + padded(name, 28) + " " + value.dump() + "\n";
  }
  return title + (out.empty() ? ": all zero\n" : "\n" + out);
}

}  // namespace

std::string devices_text(const json& status) {
  const json devices = member(status, "devices");
  std::string out = heading("Devices", devices);
  for (const json& device : devices) {
    out += "  " + padded(text(device, "name"), 20) + " MTU " + padded(std::to_string(number(device, "mtu")), 6);
    for (const json& address : member(device, "addresses")) {
      if (address.is_string()) out += " " + address.get<std::string>();
    }
    if (const json running = member(device, "running"); running.is_boolean() && !running.get<bool>())
      out += " (link down)";
    out += "\n";
  }
  return out;
}

std::string status_text(const json& status) {
  const json daemon = member(status, "daemon");
  Programs programs = programs_of(status);
  return "ucmd " + text(daemon, "version") + ": process " + std::to_string(number(daemon, "pid")) + " of user " +
         std::to_string(number(daemon, "uid")) + " on " + text(daemon, "socket") + ", up " +
         std::to_string(number(daemon, "uptime_s")) + " s\n" + devices_text(status) + sessions_text(status) +
         listeners_text(status, programs) + connections_text(status, programs) +
         numbers_text("Held", member(status, "held")) + numbers_text("Counters", member(status, "counters"));
}

}  // namespace ucm::cli
