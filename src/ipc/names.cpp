#include "ipc/names.h"

#include <array>
#include <cstddef>

namespace ucm::ipc {
namespace {

constexpr std::array<std::string_view, 17> kCalls{
    "",           "create_id",     "destroy_id",    "migrate_id", "set_option",
    "bind_addr",  "resolve_addr",  "resolve_route", "listen",     "request_taken",
    "connect",    "accept",        "reject",        "establish",  "notify",
    "disconnect", "join_multicast"};
constexpr std::array<std::string_view, 16> kEvents{
    "ADDR_RESOLVED",  "ADDR_ERROR",      "ROUTE_RESOLVED", "ROUTE_ERROR",  "CONNECT_REQUEST", "CONNECT_RESPONSE",
    "CONNECT_ERROR",  "UNREACHABLE",     "REJECTED",       "ESTABLISHED",  "DISCONNECTED",    "DEVICE_REMOVAL",
    "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE",    "TIMEWAIT_EXIT"};

template <class Names, class Value>
constexpr std::string_view pick(const Names& names, Value value) {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : std::string_view();
}

}  // namespace

std::string_view name(CmCall call) { return pick(kCalls, call); }
std::string_view name(CmEventType event) { return pick(kEvents, event); }

}  // namespace ucm::ipc
