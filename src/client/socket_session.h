// A session over a connected control socket; the node is in ucmd or in another thread, which makes no difference here.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "client/qpn_pool.h"
#include "client/session.h"
#include "client/session_core.h"
#include "ipc/memfd.h"

namespace ucm::client {

class SocketSession final : public Session {
 public:
  // `hello` is the node's answer to a program.
  static Result<std::shared_ptr<SocketSession>> open(ipc::FileDescriptor socket, Answer hello);
  // Hangs up; the links opened before live on as lost ones.
  ~SocketSession() override;

  Result<std::vector<host::Device>> devices() override;
  Result<void> watch_devices(std::function<void()> changed) override;
  Result<std::unique_ptr<CmLink>> open_cm_link() override;
  Result<std::unique_ptr<DataLink>> open_data_link() override;
  Result<SendSockets> send_sockets() override;
  Result<std::uint32_t> allocate_qpn() override;
  void free_qpn(std::uint32_t qpn) override;
  void set_peer_qpn(std::uint32_t qpn, std::uint32_t peer_qpn) override;
  Result<void> join_group(const wire::MulticastGroup& group) override;
  void leave_group(const wire::MulticastGroup& group) override;
  int lost_fd() const override { return core_->lost_fd(); }
  bool lost() const override { return core_->lost(); }

  bool inherited() const { return core_->inherited(); }

 private:
  SocketSession(std::shared_ptr<SessionCore> core, ipc::SharedMemory peer_table);
  Result<void> add_qpn_block();
  void write_peer(std::uint32_t qpn, std::uint32_t peer_qpn);

  const std::shared_ptr<SessionCore> core_;
  ipc::SharedMemory peer_table_;
  std::mutex qpns_mutex_;
  QpnPool qpns_;
  std::mutex sockets_mutex_;
  std::optional<SendSockets> sockets_;
  ipc::FileDescriptor socket_ipv4_, socket_ipv6_;
};

}  // namespace ucm::client
