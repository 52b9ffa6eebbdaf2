// A node in the test's hands: it records the commands of every link, answers as told, and pushes events when asked.
// Linking it replaces client::Session::get().
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "client/session.h"

namespace ucm::test {

class FakeLink;

class FakeNode {
 public:
  // The node that Session::get() leads to; made anew by reset().
  static FakeNode& instance();
  static void reset();

  bool present = true;
  std::vector<host::Device> devices;
  // Called for every command, after it has been recorded; the default answers with success and fresh IDs.
  std::function<ipc::CmReply(FakeLink&, const ipc::CmCommand&)> answer;

  std::vector<ipc::CmCall> calls();
  // The last command of a kind; fails the test when there is none.
  ipc::CmCommand last(ipc::CmCall call);
  std::size_t count(ipc::CmCall call);
  ipc::CmReply success(const ipc::CmCommand& command);

  // Links in the order they were opened, closed ones as null.
  FakeLink& link(std::size_t index);
  std::size_t links_open();
  // Every link is lost: one token each, as CmLink::lost() promises.
  void lose();

 private:
  friend class FakeLink;
  friend class FakeSession;
  std::mutex mutex_;
  std::vector<ipc::CmCommand> commands_;
  std::vector<FakeLink*> links_;
  std::uint32_t next_id_ = 100;
};

class FakeLink : public client::CmLink {
 public:
  explicit FakeLink(std::shared_ptr<FakeNode> node);
  ~FakeLink() override;

  // Queues the event, and writes a token where one is asked for.
  void push(const ipc::CmEvent& event);
  void push_token();
  void lose();

  int event_fd() const override { return fd_; }
  ipc::CmReply call(const ipc::CmCommand& command) override;
  bool poll_event(ipc::CmEvent& event) override;
  bool arm() override;
  bool disarm() override;
  bool lost() const override;

 private:
  const std::shared_ptr<FakeNode> node_;
  const int fd_;
  mutable std::mutex mutex_;
  std::vector<ipc::CmEvent> events_;
  bool armed_ = true;
  bool lost_ = false;
};

}  // namespace ucm::test
