// Names of enumeration values, and the arithmetic of link rates.
#include <algorithm>
#include <iterator>

#include "abi/verbs/objects.h"

namespace {

template <std::size_t N>
const char* name_of(const char* const (&names)[N], int value, const char* unknown) {
  return value >= 0 && value < static_cast<int>(N) ? names[value] : unknown;
}

// The position is the value of the enumerator.
constexpr const char* kEventNames[] = {
    "CQ error",
    "QP fatal error",
    "QP invalid request error",
    "QP access error",
    "communication established",
    "send queue drained",
    "path migrated",
    "path migration failed",
    "device fatal error",
    "port active",
    "port error",
    "LID changed",
    "P_Key table changed",
    "subnet manager changed",
    "SRQ error",
    "SRQ limit reached",
    "last WQE reached",
    "client reregistration",
    "GID table changed",
    "WQ fatal error",
};
static_assert(std::size(kEventNames) == IBV_EVENT_WQ_FATAL + 1);

constexpr const char* kStatusNames[] = {
    "success",
    "local length error",
    "local QP operation error",
    "local EE context operation error",
    "local protection error",
    "work request flushed",
    "memory window bind error",
    "bad response",
    "local access error",
    "remote invalid request",
    "remote access error",
    "remote operation error",
    "transport retries exceeded",
    "RNR retries exceeded",
    "local RDD violation",
    "remote invalid RD request",
    "remote abort",
    "invalid EE context number",
    "invalid EE context state",
    "fatal error",
    "response timeout",
    "general error",
    "tag matching error",
    "tag matching rendezvous incomplete",
};
static_assert(std::size(kStatusNames) == IBV_WC_TM_RNDV_INCOMPLETE + 1);

constexpr const char* kNodeNames[] = {
    "unknown node type", "channel adapter", "switch", "router", "RNIC", "usNIC", "usNIC over UDP", "unspecified",
};
static_assert(std::size(kNodeNames) == IBV_NODE_UNSPECIFIED + 1);

// What programs print and compare.
constexpr const char* kPortStateNames[] = {
    "PORT_NOP", "PORT_DOWN", "PORT_INIT", "PORT_ARMED", "PORT_ACTIVE", "PORT_ACTIVE_DEFER",
};
static_assert(std::size(kPortStateNames) == IBV_PORT_ACTIVE_DEFER + 1);

// `multiple` counts the 2.5 Gbit/s of one SDR lane; 0 where the rate is not a whole number of them.
struct Rate {
  ibv_rate rate;
  int multiple;
  int megabits_per_second;
};
constexpr Rate kRates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},   {IBV_RATE_5_GBPS, 2, 5000},       {IBV_RATE_10_GBPS, 4, 10000},
    {IBV_RATE_20_GBPS, 8, 20000},   {IBV_RATE_30_GBPS, 12, 30000},    {IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},  {IBV_RATE_80_GBPS, 32, 80000},    {IBV_RATE_120_GBPS, 48, 120000},
    {IBV_RATE_14_GBPS, 0, 14062},   {IBV_RATE_56_GBPS, 0, 56250},     {IBV_RATE_112_GBPS, 0, 112500},
    {IBV_RATE_168_GBPS, 0, 168750}, {IBV_RATE_25_GBPS, 0, 25781},     {IBV_RATE_100_GBPS, 0, 103125},
    {IBV_RATE_200_GBPS, 0, 206250}, {IBV_RATE_300_GBPS, 0, 309375},   {IBV_RATE_28_GBPS, 0, 28125},
    {IBV_RATE_50_GBPS, 0, 53125},   {IBV_RATE_400_GBPS, 0, 425000},   {IBV_RATE_600_GBPS, 0, 637500},
    {IBV_RATE_800_GBPS, 0, 850000}, {IBV_RATE_1200_GBPS, 0, 1275000},
};

template <class Value>
const Rate* find_rate(Value Rate::* member, Value value) {
  const auto* found = std::ranges::find(kRates, value, member);
  return found == std::end(kRates) ? nullptr : found;
}

}  // namespace

extern "C" {

const char* ibv_event_type_str(ibv_event_type event) { return name_of(kEventNames, event, "unknown event"); }
const char* ibv_wc_status_str(ibv_wc_status status) { return name_of(kStatusNames, status, "unknown status"); }
const char* ibv_node_type_str(ibv_node_type type) { return name_of(kNodeNames, type, kNodeNames[0]); }
const char* ibv_port_state_str(ibv_port_state state) { return name_of(kPortStateNames, state, "invalid state"); }

int ibv_rate_to_mult(ibv_rate rate) {
  const Rate* found = find_rate(&Rate::rate, rate);
  return found != nullptr && found->multiple != 0 ? found->multiple : -1;
}

ibv_rate mult_to_ibv_rate(int multiple) {
  const Rate* found = multiple > 0 ? find_rate(&Rate::multiple, multiple) : nullptr;
  return found != nullptr ? found->rate : IBV_RATE_MAX;
}

int ibv_rate_to_mbps(ibv_rate rate) {
  const Rate* found = find_rate(&Rate::rate, rate);
  return found != nullptr ? found->megabits_per_second : -1;
}

ibv_rate mbps_to_ibv_rate(int megabits_per_second) {
  const Rate* found = find_rate(&Rate::megabits_per_second, megabits_per_second);
  return found != nullptr ? found->rate : IBV_RATE_MAX;
}

}  // extern "C"
