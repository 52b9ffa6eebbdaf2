// A channel's link to the kernel's rdma_cm: what client::CmLink is to ucmd. Commands become writes to an open
// /dev/infiniband/rdma_cm, and events are asked for there.
//
// Thread-safe. Calls are no cancellation points; waiting is.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "ipc/file_descriptor.h"
#include "kernel/descriptor.h"

struct rdma_ucm_event_resp;

namespace ucm::kernel {

class KernelLink final : public client::CmLink {
 public:
  static Result<std::unique_ptr<KernelLink>> open();

  int event_fd() const override { return event_fd_.get(); }
  ipc::CmReply call(const ipc::CmCommand& command) override;
  bool poll_event(ipc::CmEvent& event) override;
  bool arm() override;
  bool disarm() override;
  bool lost() const override { return false; }

  int poll_fd() const override { return poll_fd_.get(); }  // readable also when the kernel has an event
  int take_token() override;
  // Moves an ID of another link here; events after the return come here.
  Result<void> adopt(std::uint32_t id, KernelLink& from);

  // What only the kernel knows of a QP. EINVAL: not in this state.
  Result<ib_uverbs_qp_attr> qp_attributes(std::uint32_t id, std::uint32_t qp_state);
  // `multicast` is the number of the join.
  Result<void> leave_multicast(std::uint32_t id, std::uint32_t multicast);

 private:
  struct Group {
    std::uint32_t multicast;
    std::uint32_t kernel_id;
  };
  struct Id {
    std::uint32_t kernel_id = 0;
    bool is_datagram = false;
    std::uint32_t listener = 0;  // whose request it is, until the program has read that
    std::vector<Group> groups;
  };

  KernelLink(std::shared_ptr<Descriptor> descriptor, ipc::FileDescriptor poll_fd, ipc::FileDescriptor event_fd);

  // Calls. Errors are errno values, 0 for success.
  int submit(Bytes command);
  int execute(std::uint32_t kernel_id, const ipc::CmCommand& command, ipc::CmReply& reply);
  int create(const ipc::CmCommand& command, ipc::CmReply& reply);
  int destroy(std::uint32_t id);
  int take_request(std::uint32_t id);
  int bind(std::uint32_t kernel_id, const ipc::CmCommand& command, ipc::CmReply& reply);
  int resolve_address(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int resolve_route(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int listen(std::uint32_t kernel_id, const ipc::CmCommand& command, ipc::CmReply& reply);
  int set_option(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int connect(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int accept(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int establish(std::uint32_t kernel_id);
  int reject(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int notify(std::uint32_t kernel_id);
  int disconnect(std::uint32_t kernel_id);
  int join_multicast(std::uint32_t kernel_id, const ipc::CmCommand& command);
  int destroy_kernel_id(std::uint32_t kernel_id);
  int query_route(std::uint32_t kernel_id, ipc::CmPath& path, ipc::CmDevicePath& device);
  int query_bound(std::uint32_t kernel_id, ipc::CmReply& reply);

  // Credentials that have changed since the descriptor was opened need another one.
  std::shared_ptr<Descriptor> current();
  bool reopen(const std::shared_ptr<Descriptor>& refused);

  std::optional<std::uint32_t> kernel_id_of(std::uint32_t id);
  bool is_datagram(std::uint32_t id);
  std::uint32_t add(const Id& id);

  // Events, with events_mutex_ held. pump() takes one event from the kernel; EAGAIN when there is none.
  int pump();
  std::optional<ipc::CmEvent> translate(const rdma_ucm_event_resp& response);
  std::optional<ipc::CmEvent> translate_request(const rdma_ucm_event_resp& response, ipc::CmEvent event);

  const ipc::FileDescriptor poll_fd_;
  const ipc::FileDescriptor event_fd_;

  std::mutex events_mutex_;
  std::deque<ipc::CmEvent> events_;
  bool armed_ = true;

  std::mutex mutex_;  // may be taken while events_mutex_ is held, not the other way round
  std::shared_ptr<Descriptor> descriptor_;
  std::unordered_map<std::uint32_t, Id> ids_;
};

}  // namespace ucm::kernel
