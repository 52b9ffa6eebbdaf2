// An rdma_cm_id: the calls of the rdma_cm API on it, the state of its connection, and the transitions of its QP.
//
// The public structure is the base, filled at the moments programs expect. Errors are errno values with a message.
//
// Threads: calls on one ID may come from several threads, and events of it be read in another one. Two locks, never
// held across a wait for an event:
//   qp_mutex_  while the QP is created, modified, attached to a multicast group or destroyed, so that a QP destroyed by
//              one thread is not modified by another that reads events;
//   mutex_     the state below it; may be taken while qp_mutex_ is held, not the other way round.
#pragma once

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "ipc/cm_api.h"
#include "rdma/address_info.h"
#include "rdma/event_channel.h"
#include "rdma/phase.h"
#include "rdma/process.h"
#include "rdma/qp_attributes.h"

namespace ucm::rdma {

class Id : public rdma_cm_id, public std::enable_shared_from_this<Id> {
 public:
  // Without a channel the ID is synchronous: it gets a channel of its own, and each of its calls waits for the event
  // that ends it. Owned by its channel's table until destroy().
  static Result<Id*> create(rdma_event_channel* channel, void* context, rdma_port_space port_space);
  static Result<Id*> create(rdma_event_channel* channel, void* context, rdma_port_space port_space,
                            ibv_qp_type qp_type);
  static Id& from(rdma_cm_id& id) { return static_cast<Id&>(id); }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;

  // Blocks until every event delivered for this ID has been acknowledged; the ID is gone afterwards.
  void destroy();
  // nullptr makes an asynchronous ID synchronous. Waits for acknowledgements like destroy().
  Result<void> migrate(rdma_event_channel* destination);

  Result<void> bind_addr(const sockaddr* address);
  Result<void> resolve_addr(const sockaddr* source, const sockaddr* destination, int timeout_ms);
  Result<void> resolve_route(int timeout_ms);
  Result<void> listen(int backlog);
  Result<Id*> get_request();
  Result<void> connect(const rdma_conn_param* param);
  Result<void> accept(const rdma_conn_param* param);
  Result<void> reject(std::uint16_t reason, const void* private_data, std::uint8_t size);
  Result<void> establish();
  Result<void> notify(ibv_event_type event);
  Result<void> disconnect();
  Result<void> set_option(int level, int name, const void* value, std::size_t size);
  // The event names `context`. A sender's QP is not attached: nothing sent to the group comes to it.
  enum class MulticastRole : std::uint8_t { kMember, kSender };
  Result<void> join_multicast(const sockaddr* group, MulticastRole role, void* context);
  Result<void> leave_multicast(const sockaddr* group);  // EADDRNOTAVAIL: not joined

  // Events of the process's own making. EINVAL: another type than RDMA_CM_EVENT_USER (18).
  Result<void> write_event(int type, int status, std::uint64_t argument);
  // Names are looked up before it returns; the event tells of the result, which address_info() copies (ENODATA: none).
  // EINVAL: nothing to look up.
  Result<void> resolve_addrinfo(const char* node, const char* service, const rdma_addrinfo* hints);
  Result<rdma_addrinfo*> address_info();

  Result<void> create_qp(ibv_qp_init_attr_ex& attributes);
  void destroy_qp();
  Result<int> init_qp_attributes(ibv_qp_attr& attributes);  // returns the mask
  Result<void> create_srq(ibv_srq_init_attr_ex& attributes);
  void destroy_srq();
  Result<void> set_local_ece(const ibv_ece& ece);
  Result<ibv_ece> remote_ece();

  // rdma_create_ep: the attributes for QPs of accepted requests, and bytes that go in front of connect()'s data.
  void set_endpoint_qp(ibv_pd* protection_domain, const ibv_qp_init_attr& attributes);
  void set_connect_data(std::vector<std::uint8_t> bytes) { connect_data_ = std::move(bytes); }

  std::uint32_t handle() const { return handle_; }
  // As EventChannel::inherited_by_fork().
  bool inherited_by_fork() const { return generation_ != fork_generation(); }

  // For EventChannel and Event.
  void count_delivered();
  void count_acknowledged();
  // Does what an event asks of the library and fills `told` for the program; false: the program shall not see it.
  bool process_event(const ipc::CmEvent& cause, Event& told);
  // nullopt when nothing waits and no device is lost.
  std::optional<ipc::CmEventType> event_when_node_lost();

 private:
  Id(std::shared_ptr<EventChannel> event_channel, void* user_context, rdma_port_space port_space, ibv_qp_type type,
     std::uint32_t node_handle);

  // Commands.
  std::shared_ptr<EventChannel> current_channel();
  ipc::CmCommand command(ipc::CmCall call) const;
  Result<ipc::CmReply> call(const ipc::CmCommand& command);
  // Where the node is known to agree the reply is not waited for. What fails all the same is told by an event.
  enum class Answer : std::uint8_t { kAwaited, kExpected };
  // The same, being in `next` meanwhile; back in the phase before when the node refuses.
  Result<ipc::CmReply> call_entering(Phase next, const ipc::CmCommand& command, Answer answer = Answer::kAwaited);
  static Result<ipc::CmReply> result_of(const ipc::CmReply& reply);
  void set_phase(Phase phase);
  Phase phase();
  bool has_qp();
  bool is_datagram() const { return qp_type == IBV_QPT_UD; }
  bool is_xrc() const { return qp_type == IBV_QPT_XRC_SEND || qp_type == IBV_QPT_XRC_RECV; }
  Result<void> supported() const;
  // A synchronous ID waits for its event; others are done.
  Result<void> complete();
  void release_held_event();
  void wait_until_acknowledged();

  // The parts of connect() and accept() that differ.
  Result<void> describe_connection(const rdma_conn_param* param, ipc::CmConnParam& connection);
  Result<void> prepare_connection(const rdma_conn_param* param, ipc::CmConnParam& connection);

  // What is known of the connection.
  // `path` names the device when it is one of the kernel's.
  Result<void> attach_device(std::uint32_t ifindex, const ipc::CmDevicePath& path);
  void set_local_address(const ipc::SocketAddress& address);
  void set_addresses(const ipc::CmPath& path, const ipc::CmDevicePath& device);
  void set_route(const ipc::CmPath& path, const ipc::CmDevicePath& device);
  Result<void> append_private_data(ipc::CmConnParam& out, std::span<const std::uint8_t> bytes) const;
  Result<void> check_depths(const rdma_conn_param* param) const;
  Result<ipc::CmConnParam> describe_qp(const rdma_conn_param* param);

  // Events, by what they ask for.
  bool process_request(const ipc::CmEvent& cause, Event& told);
  Result<std::shared_ptr<Id>> adopt(const ipc::CmEvent& request);
  void process_response(const ipc::CmEvent& cause, Event& told);
  void process_datagram_answer(const ipc::CmEvent& cause, Event& told);
  Result<void> connect_qp();
  bool process_multicast(const ipc::CmEvent& cause, Event& told);
  bool process_end(Event& told);

  // QP transitions; with qp_mutex_ held unless said otherwise.
  Result<void> modify_qp(ibv_qp& target, ibv_qp_state state);
  void limit_depths(ibv_qp_attr& attributes);
  Result<void> ready_qp();
  Result<void> ready_datagram_qp(ibv_qp& target);
  void fail_qp();  // takes qp_mutex_; nothing without a QP
  Result<ConnectionFacts> facts();
  Result<void> create_cqs(ibv_qp_init_attr_ex& attributes);
  void destroy_cqs();
  bool make_cq(std::uint32_t depth, ibv_comp_channel*& comp_channel, ibv_cq*& cq);
  Result<void> complete_xrc(ibv_srq_init_attr_ex& attributes);
  // A QP that is attached to a group cannot be destroyed.
  void detach_from_groups();
  Result<ibv_ece> negotiate_ece(const ibv_ece& remote);

  const std::uint32_t handle_;
  const unsigned generation_ = fork_generation();

  std::mutex qp_mutex_;
  struct Membership {
    std::uint32_t number = 0;  // names it in the event that answers the join
    ipc::SocketAddress group;
    MulticastRole role{};
    void* context = nullptr;
    bool attached = false;  // the QP, to:
    ibv_gid gid{};
    std::uint16_t lid = 0;
  };
  void detach(Membership& membership);
  std::vector<Membership> memberships_;
  std::uint32_t last_membership_ = 0;

  std::mutex mutex_;
  std::condition_variable acknowledged_changed_;
  std::shared_ptr<EventChannel> channel_;
  bool synchronous_ = false;
  Phase phase_ = Phase::kIdle;
  bool connect_failed_ = false;  // CONNECT_ERROR was told; what the peer says afterwards is of no interest
  std::uint64_t delivered_ = 0;
  std::uint64_t acknowledged_ = 0;
  Device* device_ = nullptr;
  ipc::CmPath path_;
  ipc::CmQpParams qp_params_;
  std::optional<std::uint8_t> ack_timeout_;
  bool qkey_in_use_ = false;  // the program, or the library, has asked for UD attributes
  ibv_ece local_ece_{};
  ibv_ece remote_ece_{};
  ibv_sa_path_rec path_record_{};
  std::unique_ptr<rdma_addrinfo, decltype(&free_address_info)> address_info_{nullptr, free_address_info};

  ibv_pd* endpoint_pd_ = nullptr;
  std::optional<ibv_qp_init_attr> endpoint_qp_;
  std::vector<std::uint8_t> connect_data_;
};

}  // namespace ucm::rdma
