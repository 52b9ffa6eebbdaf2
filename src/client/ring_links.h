// The links of a session: rings in memory shared with the node.
#pragma once

#include <memory>
#include <mutex>

#include "client/session.h"
#include "client/session_core.h"
#include "ipc/control_messages.h"
#include "ipc/memfd.h"
#include "ipc/ring.h"

namespace ucm::client {

class RingCmLink final : public CmLink {
 public:
  static Result<std::unique_ptr<CmLink>> open(std::shared_ptr<SessionCore> core);
  ~RingCmLink() override;

  int event_fd() const override { return event_fd_.get(); }
  ipc::CmReply call(const ipc::CmCommand& command) override;
  ipc::CmReply post(const ipc::CmCommand& command) override;
  bool poll_event(ipc::CmEvent& event) override;
  bool arm() override;
  bool disarm() override;
  bool lost() const override { return core_->lost(); }

 private:
  enum class Wait { kReply, kLost };

  RingCmLink(std::shared_ptr<SessionCore> core, std::uint32_t id, ipc::SharedMemory memory, Answer& answer);
  ipc::CmReply lost_reply() const;
  // With call_mutex_ held. The reply is that of a lost node when it is.
  ipc::CmReply exchange(ipc::CmCommand command);
  bool send(const ipc::CmCommand& command);
  ipc::CmReply create(ipc::CmCommand command);
  Wait await_reply(ipc::CmReply& reply);
  bool sleep_until_reply();
  bool sleep_until_told();

  const std::shared_ptr<SessionCore> core_;
  const std::uint32_t id_;
  ipc::SharedMemory memory_;
  ipc::FileDescriptor doorbell_, reply_fd_, event_fd_;
  std::mutex call_mutex_;
  std::uint32_t sequence_ = 0;
  // Of IDs that can be made without asking. Most links have one ID: only a link's second one asks for more.
  std::uint32_t next_number_ = 0;
  std::uint32_t numbers_left_ = 0;
  std::uint32_t numbers_wanted_ = 0;
  ipc::RingProducer commands_;
  ipc::RingConsumer replies_;
  std::mutex events_mutex_;
  ipc::RingConsumer events_;
};

class RingDataLink final : public DataLink {
 public:
  static Result<std::unique_ptr<DataLink>> open(std::shared_ptr<SessionCore> core);
  ~RingDataLink() override;

  int wake_fd() const override { return wake_fd_.get(); }
  std::size_t poll(const std::function<void(const wire::DatagramInfo&, Bytes)>& sink, std::size_t packets_max) override;
  bool wait_prepare() override;
  void wait_done() override;
  bool lost() const override { return core_->lost(); }

 private:
  RingDataLink(std::shared_ptr<SessionCore> core, ipc::SharedMemory memory, Answer& answer);

  const std::shared_ptr<SessionCore> core_;
  ipc::SharedMemory memory_;
  ipc::FileDescriptor wake_fd_;
  ipc::RingConsumer packets_;
  alignas(64) std::array<std::uint8_t, ipc::kDataRecordMax> record_{};
};

}  // namespace ucm::client
