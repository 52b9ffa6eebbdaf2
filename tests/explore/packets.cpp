#include "explore/packets.h"

#include <bit>

#include "base/check.h"
#include "base/hash.h"
#include "wire/cm_messages.h"

namespace ucm::explore {
namespace {

std::string message_name(wire::Attribute attribute) {
  const std::string name(wire::name(attribute));
  return name.empty() ? "message " + std::to_string(static_cast<int>(attribute)) : name;
}

}  // namespace

Packets::Index Packets::intern(unsigned from, const cm::Packet& packet) {
  StateHash hash;
  hash.add(from);
  hash.add(Bytes(packet.path.remote.bytes));
  hash.add(packet.path.traffic_class);
  hash.add(packet.path.hop_limit);
  hash.add(Bytes(packet.mad));
  const auto [found, added] = by_hash_.try_emplace(hash.value(), static_cast<Index>(packets_.size()));
  if (!added) return found->second;
  UCM_CHECK(packets_.size() < UINT16_MAX);

  const auto header = *wire::MadHeader::parse(packet.mad);
  const Bytes payload = Bytes(packet.mad).subspan(wire::MadHeader::kSize);
  // Every CM message begins with its sender's comm ID; all but REQ go on with the receiver's.
  const std::uint32_t sender = load_be32(&payload[0]);
  const std::uint32_t receiver = load_be32(&payload[4]);
  PacketInfo info{.to = 1 - from, .path = packet.path, .mad = packet.mad, .comm_ids = comm_ids_.set_of(sender)};
  std::swap(info.path.local, info.path.remote);
  info.is_request = header.attribute == wire::Attribute::kReq;
  if (info.is_request) {
    info.connection = static_cast<unsigned>(std::countr_zero(info.comm_ids[from])) / kCommIdsPerConnection;
  }
  info.name = message_name(header.attribute);
  info.is_rejection = header.attribute == wire::Attribute::kRej;
  if (info.is_rejection) {
    info.name += "(" + std::to_string(static_cast<int>(wire::Rej::parse(payload)->reason)) + ")";
  }
  info.kind = info.name + (info.to == 0 ? ">A " : ">B ");
  info.name += " " + comm_ids_.name(sender);
  if (!info.is_request) {
    info.comm_ids = info.comm_ids | comm_ids_.set_of(receiver);
    info.name += "->" + comm_ids_.name(receiver);
  }
  packets_.push_back(info);
  return found->second;
}

}  // namespace ucm::explore
