// The C entry points of librdmacm.so.1, without rsockets. What they mean is in src/rdma.
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "abi/rdmacm/boundary.h"
#include "rdma/address_info.h"
#include "rdma/convert.h"
#include "rdma/event_channel.h"
#include "rdma/id.h"
#include "rdma/process.h"
#include "wire/cm_messages.h"

using ucm::Result;
using ucm::rdma::Event;
using ucm::rdma::EventChannel;
using ucm::rdma::guarded;
using ucm::rdma::Id;

// What programs built against rdma-core have compiled in.
static_assert(sizeof(rdma_cm_id) == 416 && offsetof(rdma_cm_id, qp_type) == 408 && offsetof(rdma_cm_id, pd) == 400);
static_assert(sizeof(rdma_cm_event) == 80 && offsetof(rdma_cm_event, param) == 24);
static_assert(sizeof(rdma_conn_param) == 24 && sizeof(rdma_ud_param) == 56);
static_assert(sizeof(rdma_event_channel) == 4 && sizeof(rdma_addrinfo) == 96);

namespace {

constexpr int kEndpointTimeoutMs = 2000;  // Linux: rdma_create_ep

int invalid(const char* function, const char* what) {
  ucm::rdma::report(function, {EINVAL, what});
  return -1;
}

ibv_qp_init_attr_ex extended(const ibv_qp_init_attr& attributes, ibv_pd* pd) {
  ibv_qp_init_attr_ex out{};
  static_assert(offsetof(ibv_qp_init_attr_ex, comp_mask) >= offsetof(ibv_qp_init_attr, sq_sig_all));
  out.qp_context = attributes.qp_context;
  out.send_cq = attributes.send_cq;
  out.recv_cq = attributes.recv_cq;
  out.srq = attributes.srq;
  out.cap = attributes.cap;
  out.qp_type = attributes.qp_type;
  out.sq_sig_all = attributes.sq_sig_all;
  out.pd = pd;
  out.comp_mask = pd != nullptr ? IBV_QP_INIT_ATTR_PD : 0;
  return out;
}

Result<void> create_qp(Id& id, ibv_pd* pd, ibv_qp_init_attr& attributes) {
  ibv_qp_init_attr_ex attributes_ex = extended(attributes, pd);
  auto created = id.create_qp(attributes_ex);
  if (!created) return created;
  attributes.send_cq = attributes_ex.send_cq;
  attributes.recv_cq = attributes_ex.recv_cq;
  attributes.srq = attributes_ex.srq;
  attributes.cap = attributes_ex.cap;
  return {};
}

Result<void> set_up_endpoint(Id& id, const rdma_addrinfo& info, ibv_pd* pd, ibv_qp_init_attr* qp_attributes) {
  if ((info.ai_flags & RAI_PASSIVE) != 0) {
    if (auto bound = id.bind_addr(info.ai_src_addr); !bound) return bound;
    if (qp_attributes != nullptr) {
      ibv_qp_init_attr attributes = *qp_attributes;
      attributes.qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
      id.set_endpoint_qp(pd, attributes);
    }
    return {};
  }
  if (auto resolved = id.resolve_addr(info.ai_src_addr, info.ai_dst_addr, kEndpointTimeoutMs); !resolved) {
    return resolved;
  }
  if (auto resolved = id.resolve_route(kEndpointTimeoutMs); !resolved) return resolved;
  if (qp_attributes != nullptr) {
    qp_attributes->qp_type = static_cast<ibv_qp_type>(info.ai_qp_type);
    if (auto created = create_qp(id, pd, *qp_attributes); !created) return created;
  }
  if (info.ai_connect_len != 0) {
    const auto* bytes = static_cast<const std::uint8_t*>(info.ai_connect);
    id.set_connect_data(std::vector<std::uint8_t>(bytes, bytes + info.ai_connect_len));
  }
  return {};
}

}  // namespace

extern "C" {

// --- Events ---------------------------------------------------------------------------------------------------------

rdma_event_channel* rdma_create_event_channel(void) {
  rdma_event_channel* channel = nullptr;
  guarded(__func__, [] { return EventChannel::open(); }, [&](const auto& opened) { channel = opened->get(); });
  return channel;
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
  if (channel != nullptr) EventChannel::from(*channel).close();
}

int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return invalid(__func__, "no channel or no place for the event");
  return guarded(
      __func__, [&] { return EventChannel::from(*channel).next_event(); }, [&](const auto& next) { *event = *next; });
}

int rdma_ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return invalid(__func__, "no event");
  delete &Event::from(*event);
  return 0;
}

const char* rdma_event_str(rdma_cm_event_type event) {
  rdma_cm_event holder{};
  std::memcpy(&holder.event, &event, sizeof event);
  return ucm::rdma::event_name(ucm::rdma::type_of(holder));
}

// --- IDs ------------------------------------------------------------------------------------------------------------

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps) {
  if (id == nullptr) return invalid(__func__, "no place for the ID");
  return guarded(
      __func__, [&] { return Id::create(channel, context, ps); }, [&](const auto& created) { *id = *created; });
}

int rdma_destroy_id(rdma_cm_id* id) {
  if (id == nullptr) return invalid(__func__, "no ID");
  return guarded(__func__, [&]() -> Result<void> {
    Id::from(*id).destroy();
    return {};
  });
}

int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return guarded(__func__, [&] { return Id::from(*id).migrate(channel); });
}

int rdma_set_option(rdma_cm_id* id, int level, int optname, void* optval, size_t optlen) {
  return guarded(__func__, [&] { return Id::from(*id).set_option(level, optname, optval, optlen); });
}

// --- Addresses and routes -------------------------------------------------------------------------------------------

int rdma_bind_addr(rdma_cm_id* id, sockaddr* addr) {
  return guarded(__func__, [&] { return Id::from(*id).bind_addr(addr); });
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr* src_addr, sockaddr* dst_addr, int timeout_ms) {
  return guarded(__func__, [&] { return Id::from(*id).resolve_addr(src_addr, dst_addr, timeout_ms); });
}

int rdma_resolve_route(rdma_cm_id* id, int timeout_ms) {
  return guarded(__func__, [&] { return Id::from(*id).resolve_route(timeout_ms); });
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return ucm::rdma::port_of(id->route.addr.src_storage); }

__be16 rdma_get_dst_port(rdma_cm_id* id) { return ucm::rdma::port_of(id->route.addr.dst_storage); }

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints, rdma_addrinfo** res) {
  return ucm::rdma::get_address_info(node, service, hints, res);
}

void rdma_freeaddrinfo(rdma_addrinfo* res) { ucm::rdma::free_address_info(res); }

// --- Connections ----------------------------------------------------------------------------------------------------

int rdma_listen(rdma_cm_id* id, int backlog) {
  return guarded(__func__, [&] { return Id::from(*id).listen(backlog); });
}

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
  return guarded(
      __func__, [&] { return Id::from(*listen).get_request(); }, [&](const auto& request) { *id = *request; });
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* conn_param) {
  return guarded(__func__, [&] { return Id::from(*id).connect(conn_param); });
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* conn_param) {
  return guarded(__func__, [&] { return Id::from(*id).accept(conn_param); });
}

int rdma_reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return guarded(__func__, [&] {
    return Id::from(*id).reject(static_cast<std::uint16_t>(ucm::wire::RejReason::kConsumerDefined), private_data,
                                private_data_len);
  });
}

int rdma_reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return guarded(__func__, [&] {
    return Id::from(*id).reject(static_cast<std::uint16_t>(ucm::wire::RejReason::kVendorOptionNotSupported),
                                private_data, private_data_len);
  });
}

int rdma_establish(rdma_cm_id* id) {
  return guarded(__func__, [&] { return Id::from(*id).establish(); });
}

int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  return guarded(__func__, [&] { return Id::from(*id).notify(event); });
}

int rdma_disconnect(rdma_cm_id* id) {
  return guarded(__func__, [&] { return Id::from(*id).disconnect(); });
}

// --- QPs and SRQs ---------------------------------------------------------------------------------------------------

int rdma_create_qp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  if (qp_init_attr == nullptr) return invalid(__func__, "no QP attributes");
  return guarded(__func__, [&] { return create_qp(Id::from(*id), pd, *qp_init_attr); });
}

int rdma_create_qp_ex(rdma_cm_id* id, ibv_qp_init_attr_ex* qp_init_attr) {
  if (qp_init_attr == nullptr) return invalid(__func__, "no QP attributes");
  return guarded(__func__, [&] { return Id::from(*id).create_qp(*qp_init_attr); });
}

void rdma_destroy_qp(rdma_cm_id* id) { Id::from(*id).destroy_qp(); }

int rdma_init_qp_attr(rdma_cm_id* id, ibv_qp_attr* qp_attr, int* qp_attr_mask) {
  if (qp_attr == nullptr || qp_attr_mask == nullptr) return invalid(__func__, "no place for the attributes");
  return guarded(
      __func__, [&] { return Id::from(*id).init_qp_attributes(*qp_attr); },
      [&](const auto& mask) { *qp_attr_mask = *mask; });
}

int rdma_create_srq(rdma_cm_id* id, ibv_pd* pd, ibv_srq_init_attr* attr) {
  if (attr == nullptr) return invalid(__func__, "no SRQ attributes");
  ibv_srq_init_attr_ex attributes{};
  attributes.srq_context = attr->srq_context;
  attributes.attr = attr->attr;
  attributes.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  attributes.srq_type = id->qp_type == IBV_QPT_XRC_RECV ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
  if (pd != nullptr) {
    attributes.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    attributes.pd = pd;
  }
  return guarded(
      __func__, [&] { return Id::from(*id).create_srq(attributes); },
      [&](const auto&) { attr->attr = attributes.attr; });
}

int rdma_create_srq_ex(rdma_cm_id* id, ibv_srq_init_attr_ex* attr) {
  if (attr == nullptr) return invalid(__func__, "no SRQ attributes");
  return guarded(__func__, [&] { return Id::from(*id).create_srq(*attr); });
}

void rdma_destroy_srq(rdma_cm_id* id) { Id::from(*id).destroy_srq(); }

int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  if (id == nullptr || ece == nullptr) return invalid(__func__, "no ID or no ECE");
  return guarded(__func__, [&] { return Id::from(*id).set_local_ece(*ece); });
}

int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  if (id == nullptr || ece == nullptr) return invalid(__func__, "no ID or no place for the ECE");
  return guarded(__func__, [&] { return Id::from(*id).remote_ece(); }, [&](const auto& remote) { *ece = *remote; });
}

// --- Endpoints and devices ------------------------------------------------------------------------------------------

int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd, ibv_qp_init_attr* qp_init_attr) {
  if (id == nullptr || res == nullptr) return invalid(__func__, "no place for the ID or no address");
  return guarded(
      __func__,
      [&]() -> Result<Id*> {
        auto created = Id::create(nullptr, nullptr, static_cast<rdma_port_space>(res->ai_port_space),
                                  static_cast<ibv_qp_type>(res->ai_qp_type));
        if (!created) return created;
        if (auto ready = set_up_endpoint(**created, *res, pd, qp_init_attr); !ready) {
          rdma_destroy_ep(*created);
          return tl::unexpected(ready.error());
        }
        return created;
      },
      [&](const auto& endpoint) { *id = *endpoint; });
}

void rdma_destroy_ep(rdma_cm_id* id) {
  if (id == nullptr) return;
  Id& endpoint = Id::from(*id);
  endpoint.destroy_qp();
  endpoint.destroy_srq();
  endpoint.destroy();
}

ibv_context** rdma_get_devices(int* num_devices) {
  ibv_context** list = nullptr;
  std::size_t count = 0;
  guarded(
      __func__, [] { return ucm::rdma::Devices::instance().all(); },
      [&](const auto& devices) {
        list = static_cast<ibv_context**>(std::calloc(devices->size() + 1, sizeof(ibv_context*)));
        if (list == nullptr) return;
        for (ucm::rdma::Device* device : *devices) list[count++] = device->verbs;
      });
  if (num_devices != nullptr) *num_devices = static_cast<int>(count);
  return list;
}

void rdma_free_devices(ibv_context** list) { std::free(list); }

// --- Newer than rdma-core 44: not declared in its headers -----------------------------------------------------------

// The event's type is an enumeration that ends before those that can be written.
int rdma_write_cm_event(rdma_cm_id* id, int event, int status, std::uint64_t arg) {
  return guarded(__func__, [&] { return Id::from(*id).write_event(event, status, arg); });
}

int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service, const rdma_addrinfo* hints) {
  return guarded(__func__, [&] { return Id::from(*id).resolve_addrinfo(node, service, hints); });
}

int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  if (info == nullptr) return invalid(__func__, "no place for the result");
  return guarded(__func__, [&] { return Id::from(*id).address_info(); }, [&](const auto& copy) { *info = *copy; });
}

// --- Multicast ------------------------------------------------------------------------------------------------------

int rdma_join_multicast(rdma_cm_id* id, sockaddr* addr, void* context) {
  return guarded(__func__, [&] { return Id::from(*id).join_multicast(addr, Id::MulticastRole::kMember, context); });
}

int rdma_join_multicast_ex(rdma_cm_id* id, rdma_cm_join_mc_attr_ex* attributes, void* context) {
  constexpr std::uint32_t kKnown = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  if ((attributes->comp_mask & ~kKnown) != 0) {
    ucm::rdma::report(__func__, {ENOTSUP, "unknown attributes"});
    return -1;
  }
  // Without flags the group is joined in full; without an address there is no group.
  const bool has_flags = (attributes->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) != 0;
  const auto flags = has_flags ? attributes->join_flags : std::uint32_t{RDMA_MC_JOIN_FLAG_FULLMEMBER};
  if ((attributes->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) == 0) return invalid(__func__, "no address");
  if (flags >= RDMA_MC_JOIN_FLAG_RESERVED) return invalid(__func__, "unknown join flags");
  const auto role = flags == RDMA_MC_JOIN_FLAG_FULLMEMBER ? Id::MulticastRole::kMember : Id::MulticastRole::kSender;
  return guarded(__func__, [&] { return Id::from(*id).join_multicast(attributes->addr, role, context); });
}

int rdma_leave_multicast(rdma_cm_id* id, sockaddr* addr) {
  return guarded(__func__, [&] { return Id::from(*id).leave_multicast(addr); });
}

}  // extern "C"
