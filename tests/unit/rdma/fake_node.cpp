#include "unit/rdma/fake_node.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace ucm::test {
namespace {

std::shared_ptr<FakeNode> current = std::make_shared<FakeNode>();

}  // namespace

class FakeSession : public client::Session {
 public:
  explicit FakeSession(std::shared_ptr<FakeNode> node) : node_(std::move(node)) {}
  Result<std::vector<host::Device>> devices() override { return node_->devices; }
  Result<void> watch_devices(std::function<void()>) override { return {}; }
  Result<std::unique_ptr<client::CmLink>> open_cm_link() override { return std::make_unique<FakeLink>(node_); }
  Result<std::unique_ptr<client::DataLink>> open_data_link() override { return fail(ENOSYS, "no data here"); }
  Result<client::SendSockets> send_sockets() override { return fail(ENOSYS, "no data here"); }
  Result<std::uint32_t> allocate_qpn() override { return fail(ENOSYS, "no data here"); }
  void free_qpn(std::uint32_t) override {}
  void set_peer_qpn(std::uint32_t, std::uint32_t) override {}
  Result<void> join_group(const wire::MulticastGroup&) override { return {}; }
  void leave_group(const wire::MulticastGroup&) override {}
  int lost_fd() const override { return -1; }
  bool lost() const override { return false; }

 private:
  const std::shared_ptr<FakeNode> node_;
};

FakeNode& FakeNode::instance() { return *current; }

void FakeNode::reset() { current = std::make_shared<FakeNode>(); }

std::vector<ipc::CmCall> FakeNode::calls() {
  const std::lock_guard lock(mutex_);
  std::vector<ipc::CmCall> calls;
  for (const auto& command : commands_) calls.push_back(command.call);
  return calls;
}

ipc::CmCommand FakeNode::last(ipc::CmCall call) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(commands_.rbegin(), commands_.rend(), [&](const auto& command) { return command.call == call; });
  if (found != commands_.rend()) return *found;
  ADD_FAILURE() << "no command " << static_cast<int>(call);
  return {};
}

std::size_t FakeNode::count(ipc::CmCall call) {
  const auto all = calls();
  return static_cast<std::size_t>(std::count(all.begin(), all.end(), call));
}

ipc::CmReply FakeNode::success(const ipc::CmCommand& command) {
  ipc::CmReply reply;
  reply.id = command.call == ipc::CmCall::kCreateId ? next_id_++ : command.id;
  return reply;
}

FakeLink& FakeNode::link(std::size_t index) {
  const std::lock_guard lock(mutex_);
  return *links_.at(index);
}

std::size_t FakeNode::links_open() {
  const std::lock_guard lock(mutex_);
  return links_.size() - static_cast<std::size_t>(std::count(links_.begin(), links_.end(), nullptr));
}

void FakeNode::lose() {
  const std::lock_guard lock(mutex_);
  for (FakeLink* link : links_) {
    if (link != nullptr) link->lose();
  }
}

FakeLink::FakeLink(std::shared_ptr<FakeNode> node) : node_(std::move(node)), fd_(eventfd(0, EFD_CLOEXEC)) {
  const std::lock_guard lock(node_->mutex_);
  node_->links_.push_back(this);
}

FakeLink::~FakeLink() {
  const std::lock_guard lock(node_->mutex_);
  std::replace(node_->links_.begin(), node_->links_.end(), this, static_cast<FakeLink*>(nullptr));
  close(fd_);
}

void FakeLink::push(const ipc::CmEvent& event) {
  bool asked = false;
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    asked = std::exchange(armed_, false);
  }
  if (asked) push_token();
}

void FakeLink::push_token() {
  const std::uint64_t one = 1;
  EXPECT_EQ(write(fd_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
}

void FakeLink::lose() {
  {
    const std::lock_guard lock(mutex_);
    lost_ = true;
  }
  push_token();
}

ipc::CmReply FakeLink::call(const ipc::CmCommand& command) {
  if (lost()) {
    ipc::CmReply reply;
    reply.error = ENOTCONN;
    return reply;
  }
  {
    const std::lock_guard lock(node_->mutex_);
    node_->commands_.push_back(command);
  }
  if (node_->answer) return node_->answer(*this, command);
  return node_->success(command);
}

bool FakeLink::poll_event(ipc::CmEvent& event) {
  const std::lock_guard lock(mutex_);
  if (events_.empty()) return false;
  event = events_.front();
  events_.erase(events_.begin());
  return true;
}

bool FakeLink::arm() {
  const std::lock_guard lock(mutex_);
  armed_ = events_.empty();
  return armed_;
}

bool FakeLink::disarm() {
  const std::lock_guard lock(mutex_);
  return std::exchange(armed_, false);
}

bool FakeLink::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace ucm::test

namespace ucm::client {

Result<std::shared_ptr<Session>> Session::get() {
  if (!test::FakeNode::instance().present) return fail(ENOENT, "no UCM node answers; start ucmd or use `ucm run`");
  return std::make_shared<test::FakeSession>(test::current);
}

}  // namespace ucm::client
