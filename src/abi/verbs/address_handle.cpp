// Address handles, and the translation between GIDs in verbs structures and addresses.
#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <optional>

#include "abi/verbs/objects.h"

namespace ucm::abi::verbs {

namespace {

// Source and destination of a received UD message, from the 40 bytes in front of it.
struct ReceivedRoute {
  wire::IpAddress source;
  wire::IpAddress destination;
  std::uint32_t flow_label = 0;
  std::uint8_t traffic_class = 0;
};

bool ipv4_checksum_is_right(const std::uint8_t* header) {
  std::uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += load_be16(header + i);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

// RoCEv2 puts an IPv6 header into the area, or an IPv4 header into its last 20 bytes (IBTA A17.4.5.2). An IPv6 address
// may look like the start of an IPv4 header, but not with a matching checksum.
ReceivedRoute route_of(const ibv_grh& area) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&area);
  const std::uint8_t* const ipv4 = bytes + 20;
  constexpr std::uint8_t kVersion4Length20 = 0x45;
  if (ipv4[0] == kVersion4Length20 && ipv4_checksum_is_right(ipv4)) {
    return {.source = wire::IpAddress::ipv4(load_be32(ipv4 + 12)),
            .destination = wire::IpAddress::ipv4(load_be32(ipv4 + 16)),
            .traffic_class = ipv4[1]};
  }
  const std::uint32_t first_word = load_be32(bytes);
  return {.source = address_of(area.sgid),
          .destination = address_of(area.dgid),
          .flow_label = first_word & 0xfffff,
          .traffic_class = static_cast<std::uint8_t>(first_word >> 20)};
}

}  // namespace

wire::IpAddress address_of(const ibv_gid& gid) {
  wire::IpAddress address;
  std::copy_n(gid.raw, sizeof gid.raw, address.bytes.begin());
  return address;
}

Result<roce::AddressVector> address_vector_of(Context& context, const ibv_ah_attr& attributes) {
  constexpr std::uint8_t kHopLimitDefault = 64;
  if (attributes.is_global == 0) return fail(EINVAL, "RoCE needs a global route");
  if (attributes.port_num != kDevicePort) return fail(EINVAL, "no such port");
  const auto local = context.owner->gid(attributes.grh.sgid_index);
  if (!local) return tl::unexpected(local.error());
  const wire::IpAddress remote = address_of(attributes.grh.dgid);
  if (remote.is_unspecified()) return fail(EINVAL, "no destination GID");
  if (remote.is_ipv4() != local->is_ipv4()) return fail(EINVAL, "source and destination GID of different families");
  return roce::AddressVector{
      .local = *local,
      .remote = remote,
      .ifindex = remote.is_link_local() || remote.is_multicast() ? context.owner->ifindex() : 0,
      .traffic_class = attributes.grh.traffic_class,
      // A packet of hop limit 0 goes nowhere; programs that leave the field zero mean the default.
      .hop_limit = attributes.grh.hop_limit != 0 ? attributes.grh.hop_limit : kHopLimitDefault,
  };
}

}  // namespace ucm::abi::verbs

using namespace ucm::abi::verbs;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  const auto address = address_vector_of(*Context::from(pd->context), *attributes);
  if (!address) return null_with_errno(address.error().code);
  const auto id = software_of(pd->context).inspect([&](ucm::roce::Engine& engine) {
    return engine.create_ah(Pd::from(pd)->id, *address);
  });
  if (!id) return null_with_errno(id.error().code);
  auto* const ah = new Ah;
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = static_cast<std::uint32_t>(*id);
  ah->id = *id;
  return ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
  software_of(ah->context).inspect([&](ucm::roce::Engine& engine) { engine.destroy_ah(Ah::from(ah)->id); });
  delete Ah::from(ah);
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* completion, ibv_grh* grh,
                        ibv_ah_attr* attributes) {
  constexpr std::uint8_t kHopLimitMax = 0xff;  // the way back may be longer than the way here
  *attributes = {};
  attributes->dlid = completion->slid;
  attributes->sl = completion->sl;
  attributes->src_path_bits = completion->dlid_path_bits;
  attributes->port_num = port;
  if ((completion->wc_flags & IBV_WC_GRH) == 0) return 0;

  const ReceivedRoute route = route_of(*grh);
  const int index = Context::from(context)->owner->gid_index(route.destination);
  if (index < 0) {
    errno = ENOENT;
    return -1;
  }
  attributes->is_global = 1;
  std::copy(route.source.bytes.begin(), route.source.bytes.end(), attributes->grh.dgid.raw);
  attributes->grh.sgid_index = static_cast<std::uint8_t>(index);
  attributes->grh.flow_label = route.flow_label;
  attributes->grh.traffic_class = route.traffic_class;
  attributes->grh.hop_limit = kHopLimitMax;
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* completion, ibv_grh* grh, std::uint8_t port) {
  ibv_ah_attr attributes;
  if (ibv_init_ah_from_wc(pd->context, port, completion, grh, &attributes) != 0) return nullptr;
  return ibv_create_ah(pd, &attributes);
}

}  // extern "C"
