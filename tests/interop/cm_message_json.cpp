#include "interop/cm_message_json.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "net/socket_address.h"
#include "wire/cm_messages.h"
#include "wire/ip_cm.h"

namespace ucm::test {
namespace {

using nlohmann::json;
using namespace wire;

// T, to be read or to be written.
template <class M, class T>
concept Is = std::is_same_v<std::remove_const_t<M>, T>;

// The names: visit(member name, member).
void members(auto& visit, Is<Bth> auto& m) {
  visit("solicited_event", m.solicited_event);
  visit("mig_req", m.mig_req);
  visit("pkey", m.pkey);
  visit("destination_qpn", m.destination_qpn);
  visit("ack_request", m.ack_request);
  visit("psn", m.psn);
}
void members(auto& visit, Is<Deth> auto& m) {
  visit("qkey", m.qkey);
  visit("source_qpn", m.source_qpn);
}
void members(auto& visit, Is<MadHeader> auto& m) {
  visit("base_version", m.base_version);
  visit("management_class", m.management_class);
  visit("class_version", m.class_version);
  visit("method", m.method);
  visit("status", m.status);
  visit("class_specific", m.class_specific);
  visit("transaction_id", m.transaction_id);
  visit("attribute", m.attribute);
  visit("reserved", m.reserved);
  visit("attribute_modifier", m.attribute_modifier);
}
void members(auto& visit, Is<IpCmHeader> auto& m) {
  visit("version", m.version);
  visit("ip_version", m.ip_version);
  visit("source_port", m.source_port);
  visit("source", m.source);
  visit("destination", m.destination);
}
void path_members(auto& visit, std::string path, auto& m) {
  path += '.';
  visit(path + "local_lid", m.local_lid);
  visit(path + "remote_lid", m.remote_lid);
  visit(path + "local_gid", m.local_gid);
  visit(path + "remote_gid", m.remote_gid);
  visit(path + "flow_label", m.flow_label);
  visit(path + "packet_rate", m.packet_rate);
  visit(path + "traffic_class", m.traffic_class);
  visit(path + "hop_limit", m.hop_limit);
  visit(path + "sl", m.sl);
  visit(path + "subnet_local", m.subnet_local);
  visit(path + "local_ack_timeout", m.local_ack_timeout);
}
void members(auto& visit, Is<Req> auto& m) {
  visit("local_comm_id", m.local_comm_id);
  visit("vendor_id", m.vendor_id);
  visit("service_id", m.service_id);
  visit("local_ca_guid", m.local_ca_guid);
  visit("local_qkey", m.local_qkey);
  visit("local_qpn", m.local_qpn);
  visit("responder_resources", m.responder_resources);
  visit("initiator_depth", m.initiator_depth);
  visit("local_eecn", m.local_eecn);
  visit("remote_eecn", m.remote_eecn);
  visit("remote_cm_response_timeout", m.remote_cm_response_timeout);
  visit("transport_service", m.transport_service);
  visit("end_to_end_flow_control", m.end_to_end_flow_control);
  visit("starting_psn", m.starting_psn);
  visit("local_cm_response_timeout", m.local_cm_response_timeout);
  visit("retry_count", m.retry_count);
  visit("pkey", m.pkey);
  visit("path_mtu", m.path_mtu);
  visit("rdc_exists", m.rdc_exists);
  visit("rnr_retry_count", m.rnr_retry_count);
  visit("max_cm_retries", m.max_cm_retries);
  visit("srq", m.srq);
  visit("extended_transport_type", m.extended_transport_type);
  path_members(visit, "primary", m.primary);
  path_members(visit, "alternate", m.alternate);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Rep> auto& m) {
  visit("local_comm_id", m.local_comm_id);
  visit("remote_comm_id", m.remote_comm_id);
  visit("local_qkey", m.local_qkey);
  visit("local_qpn", m.local_qpn);
  visit("vendor_id", m.vendor_id);
  visit("local_eecn", m.local_eecn);
  visit("starting_psn", m.starting_psn);
  visit("responder_resources", m.responder_resources);
  visit("initiator_depth", m.initiator_depth);
  visit("target_ack_delay", m.target_ack_delay);
  visit("failover_accepted", m.failover_accepted);
  visit("end_to_end_flow_control", m.end_to_end_flow_control);
  visit("rnr_retry_count", m.rnr_retry_count);
  visit("srq", m.srq);
  visit("local_ca_guid", m.local_ca_guid);
  visit("private_data", m.private_data);
}
void id_members(auto& visit, auto& m) {
  visit("local_comm_id", m.local_comm_id);
  visit("remote_comm_id", m.remote_comm_id);
}
void members(auto& visit, Is<Rtu> auto& m) {
  id_members(visit, m);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Mra> auto& m) {
  id_members(visit, m);
  visit("message", m.message);
  visit("service_timeout", m.service_timeout);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Rej> auto& m) {
  id_members(visit, m);
  visit("message", m.message);
  visit("ari_length", m.ari_length);
  visit("reason", m.reason);
  visit("ari", m.ari);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Dreq> auto& m) {
  id_members(visit, m);
  visit("remote_qpn", m.remote_qpn);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Drep> auto& m) {
  id_members(visit, m);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<SidrReq> auto& m) {
  visit("request_id", m.request_id);
  visit("pkey", m.pkey);
  visit("service_id", m.service_id);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<SidrRep> auto& m) {
  visit("request_id", m.request_id);
  visit("status", m.status);
  visit("info_length", m.info_length);
  visit("vendor_id", m.vendor_id);
  visit("qpn", m.qpn);
  visit("service_id", m.service_id);
  visit("qkey", m.qkey);
  visit("info", m.info);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Lap> auto& m) {
  id_members(visit, m);
  visit("remote_qpn", m.remote_qpn);
  visit("remote_cm_response_timeout", m.remote_cm_response_timeout);
  path_members(visit, "alternate", m.alternate);
  visit("private_data", m.private_data);
}
void members(auto& visit, Is<Apr> auto& m) {
  id_members(visit, m);
  visit("info_length", m.info_length);
  visit("status", m.status);
  visit("info", m.info);
  visit("private_data", m.private_data);
}

// The messages by name. `use` is called with an empty one of that type.
void with_message(const std::string& name, const auto& use) {
  if (name == "REQ") return use(Req{});
  if (name == "MRA") return use(Mra{});
  if (name == "REJ") return use(Rej{});
  if (name == "REP") return use(Rep{});
  if (name == "RTU") return use(Rtu{});
  if (name == "DREQ") return use(Dreq{});
  if (name == "DREP") return use(Drep{});
  if (name == "SIDR_REQ") return use(SidrReq{});
  if (name == "SIDR_REP") return use(SidrRep{});
  if (name == "LAP") return use(Lap{});
  if (name == "APR") return use(Apr{});
  throw std::invalid_argument("no message " + name);
}

std::string message_name(Attribute attribute) {
  const std::string known(name(attribute));
  return known.empty() ? "attribute " + std::to_string(static_cast<unsigned>(attribute)) : known;
}

template <class T>
constexpr bool starts_with_ip_cm_header = std::is_same_v<T, Req> || std::is_same_v<T, SidrReq>;

std::string to_hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  while (!bytes.empty() && bytes.back() == 0) bytes = bytes.first(bytes.size() - 1);
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

void from_hex(const std::string& text, MutableBytes out) {
  if (text.size() % 2 != 0 || text.size() / 2 > out.size()) throw std::invalid_argument("octets: " + text);
  for (std::size_t i = 0; i < text.size() / 2; ++i) {
    out[i] = static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
}

struct ToJson {
  json& out;

  template <class T>
  void operator()(const std::string& name, const T& value) {
    if constexpr (std::is_same_v<T, IpAddress>) {
      out[name] = net::to_string(value);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      out[name] = static_cast<std::uint64_t>(value);
    } else {
      out[name] = to_hex(value);
    }
  }
};

// Sets the members that are named; the others stay. taken() must follow: it finds names that nobody has.
struct FromJson {
  const json& in;
  std::set<std::string> known{};

  template <class T>
  void operator()(const std::string& name, T& value) {
    known.insert(name);
    if (!in.contains(name)) return;
    if constexpr (std::is_same_v<T, IpAddress>) {
      value = parse_address(in[name].get<std::string>());
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      value = static_cast<T>(in[name].get<std::uint64_t>());
    } else {
      from_hex(in[name].get<std::string>(), value);
    }
  }
  void taken() const {
    for (const auto& [name, value] : in.items()) {
      if (!known.contains(name)) throw std::invalid_argument("no field " + name);
    }
  }
};

json described(const auto& message) {
  json text = json::object();
  ToJson visit{text};
  members(visit, message);
  return text;
}

template <class T>
void read_members(const json& description, const char* name, T& out) {
  if (!description.contains(name)) return;
  FromJson visit{description[name]};
  members(visit, out);
  visit.taken();
}

template <class T>
void describe_message(Bytes payload, json& out) {
  const T message = T::parse(payload).value();
  out["fields"] = described(message);
  if constexpr (starts_with_ip_cm_header<T>) {
    out["cma"] = described(IpCmHeader::parse(message.private_data).value());
    out["fields"]["private_data"] = to_hex(Bytes(message.private_data).subspan(IpCmHeader::kSize));
  }
  std::array<std::uint8_t, kMadPayloadSize> again{};
  message.emit(again);
  for (std::size_t i = 0; i < again.size(); ++i) again[i] ^= payload[i];
  if (const std::string reserved = to_hex(again); !reserved.empty()) out["reserved"] = reserved;
}

template <class T>
void build_message(const json& description, MutableBytes payload) {
  T message{};
  const json none = json::object();
  FromJson visit{description.contains("fields") ? description["fields"] : none};
  if constexpr (starts_with_ip_cm_header<T>) {
    IpCmHeader header;
    read_members(description, "cma", header);
    members(visit, message);  // these octets would begin too early
    PrivateData<sizeof(message.private_data) - IpCmHeader::kSize> user{};
    visit("private_data", user);
    header.emit(message.private_data);
    std::copy(user.begin(), user.end(), message.private_data.begin() + IpCmHeader::kSize);
  } else {
    members(visit, message);
  }
  visit.taken();
  message.emit(payload);
}

// The MAD, of any size, as the description has it.
std::vector<std::uint8_t> build_mad(const json& description) {
  std::vector<std::uint8_t> mad(kMadSize);
  with_message(description.at("message").get<std::string>(), [&]<class T>(const T&) {
    MadHeader header{};
    header.attribute = T::kAttribute;
    read_members(description, "mad", header);
    header.emit(mad);
    build_message<T>(description, MutableBytes(mad).subspan(MadHeader::kSize));
  });
  for (const json& patch : description.value("patch", json::array())) {
    from_hex(patch.at(1).get<std::string>(), MutableBytes(mad).subspan(patch.at(0).get<std::size_t>()));
  }
  mad.resize(description.value("size", kMadSize));
  return mad;
}

void check_names(const json& description) {
  static const std::set<std::string> kNames = {"message", "source", "destination", "fields", "mad",  "bth",
                                               "deth",    "cma",    "patch",       "size",   "icrc", "plain"};
  for (const auto& [name, value] : description.items()) {
    if (!kNames.contains(name)) throw std::invalid_argument("no member " + name);
  }
}

}  // namespace

IpAddress parse_address(const std::string& text) {
  net::SocketAddress address{};
  if (inet_pton(AF_INET6, text.c_str(), &address.ipv6.sin6_addr) == 1) {
    return net::from_in6_addr(address.ipv6.sin6_addr);
  }
  if (inet_pton(AF_INET, text.c_str(), &address.ipv4.sin_addr) != 1) throw std::invalid_argument("address: " + text);
  return net::from_in_addr(address.ipv4.sin_addr);
}

json describe_packet(const DatagramInfo& info, Bytes datagram) {
  json text = {{"source", net::to_string(info.source)},
               {"destination", net::to_string(info.destination)},
               {"traffic_class", info.traffic_class},
               {"hop_limit", info.hop_limit},
               {"icrc", verify_icrc(info, datagram) == IcrcCheck::kBad ? "bad" : "good"}};
  const auto packet = parse_ud_packet(datagram);
  if (!packet || packet->payload.size() != kMadSize) {
    text["message"] = "no CM packet";
    text["plain"] = to_hex(datagram);
    return text;
  }
  const MadHeader header = MadHeader::parse(packet->payload).value();
  text["message"] = message_name(header.attribute);
  text["bth"] = described(packet->bth);
  text["bth"]["opcode"] = static_cast<unsigned>(packet->bth.opcode);
  text["deth"] = described(packet->deth);
  text["mad"] = described(header);
  const Bytes payload = packet->payload.subspan(MadHeader::kSize);
  if (text["message"].get<std::string>().starts_with("attribute")) {
    text["plain"] = to_hex(payload);
  } else {
    with_message(text["message"], [&]<class T>(const T&) { describe_message<T>(payload, text); });
  }
  return text;
}

std::vector<std::uint8_t> build_packet(const DatagramInfo& info, const json& description) {
  check_names(description);
  if (description.contains("plain")) {
    const auto text = description["plain"].get<std::string>();
    std::vector<std::uint8_t> bytes(text.size() / 2);
    from_hex(text, bytes);
    return bytes;
  }
  const std::vector<std::uint8_t> mad = build_mad(description);
  UdPacket packet{
      .bth = {.destination_qpn = kGsiQpn}, .deth = {.qkey = kGsiQkey, .source_qpn = kGsiQpn}, .payload = mad};
  read_members(description, "bth", packet.bth);
  read_members(description, "deth", packet.deth);
  std::vector<std::uint8_t> bytes(ud_packet_size(mad.size(), false));
  emit_ud_packet(info, packet, bytes);
  const MutableBytes checksum = MutableBytes(bytes).last(kIcrcSize);
  store_icrc(checksum, icrc(info, Bytes(bytes).first(bytes.size() - kIcrcSize)) ^ description.value("icrc", 0U));
  return bytes;
}

}  // namespace ucm::test
