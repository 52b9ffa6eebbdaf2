// A node for tests of the server and the session: it answers what it is told to, and delivers what a test wants.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "daemon/observation.h"
#include "daemon/server.h"
#include "ipc/control_socket.h"
#include "net/event_loop.h"

namespace ucm::daemon {

class FakeNode final : public NodeAccess {
 public:
  ipc::CmReply execute(node::SessionId session, node::LinkId link, const ipc::CmCommand& command) override {
    return on_execute ? on_execute(session, link, command) : ipc::CmReply{};
  }
  void set_limits(const node::Limits&) override {}
  void allow_low_ports(node::SessionId session) override { low_port_sessions.push_back(session); }
  void remove_link(node::LinkId link) override { removed_links.push_back(link); }
  void remove_session(node::SessionId session) override { removed_sessions.push_back(session); }
  Result<void> join_group(const wire::MulticastGroup& group) override {
    if (group_error != 0) return fail(group_error, "told to fail");
    groups.insert(group);
    return {};
  }
  void leave_group(const wire::MulticastGroup& group) override { groups.erase(group); }
  void commit() override {}
  std::vector<node::Node::ListenerStatus> listeners() const override { return {}; }
  std::vector<node::Node::ConnectionStatus> connections() const override { return {}; }
  // The same ones, `list_calls` times.
  std::vector<node::Node::Listing> list(node::Node::ListPosition& position, std::size_t) const override {
    if (++position.next >= list_calls) position.part = node::Node::ListPosition::Part::kEnd;
    return listings;
  }
  node::FlightRecorder* recorder() const override { return flight_recorder; }
  Result<void> record_engine(std::function<bool(Bytes record)> sink) override {
    record_sink = std::move(sink);
    return {};
  }
  std::vector<node::Node::Count> counters() const override { return {{"node_received", 7}}; }
  std::vector<node::Node::Count> held() const override { return {{"connections", 3}}; }
  std::vector<host::Device> devices() const override { return device_list; }
  bool is_local(const wire::IpAddress& address) const override { return address.is_loopback(); }

  std::function<ipc::CmReply(node::SessionId, node::LinkId, const ipc::CmCommand&)> on_execute;
  std::vector<host::Device> device_list;
  std::vector<node::Node::Listing> listings;
  std::uint32_t list_calls = 1;
  node::FlightRecorder* flight_recorder = nullptr;
  std::function<bool(Bytes record)> record_sink;
  std::vector<node::SessionId> low_port_sessions;
  std::vector<node::LinkId> removed_links;
  std::vector<node::SessionId> removed_sessions;
  std::set<wire::MulticastGroup> groups;
  int group_error = 0;
};

// A server in a thread of its own, as in ucmd.
class ServerThread {
 public:
  explicit ServerThread(ServerOptions options = {}) {
    loop_ = std::move(net::EventLoop::create().value());
    server_ = std::make_unique<Server>(*loop_, std::move(options));
    callbacks = server_->node_callbacks();
    server_->attach(node);
    loop_->add_hook([this](TimeNs) { return run_tasks(); });
    task_fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    static_cast<void>(loop_->add(task_fd_.get(), [this](std::uint32_t) {
      eventfd_t count = 0;
      eventfd_read(task_fd_.get(), &count);
    }));
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~ServerThread() { stop(); }

  void stop() {
    if (!thread_.joinable()) return;
    run([this] { server_->shut_down(); });
    thread_.join();
  }
  // Waits for a stop that somebody else has asked for.
  void wait_stopped() { thread_.join(); }
  // Without goodbye, as if killed: every descriptor is closed at once.
  void kill() {
    run([this] { loop_->stop(); });
    thread_.join();
    server_.reset();
  }

  // A socket that the server serves.
  ipc::FileDescriptor connect() {
    auto sockets = ipc::connected_pair();
    run([&] { static_cast<void>(server_->adopt(std::move(sockets->second))); });
    return std::move(sockets->first);
  }

  // Runs `task` in the server's thread and waits for its end.
  void run(const std::function<void()>& task) {
    std::atomic<bool> done{false};
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back([&] {
        task();
        done.store(true);
        done.notify_one();
      });
    }
    eventfd_write(task_fd_.get(), 1);
    done.wait(false);
  }
  // Turns the loop until `condition`, evaluated in the server's thread, holds; false after many turns without.
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 10'000; ++i) {
      bool holds = false;
      run([&] { holds = condition(); });
      if (holds) return true;
    }
    return false;
  }

  ServerCounters counters() {
    ServerCounters result;
    run([&] { result = server_->counters(); });
    return result;
  }
  std::string status(Viewer viewer = {.sees_all = true}) {
    std::string result;
    run([&] { result = server_->status_json(viewer); });
    return result;
  }

  FakeNode node;
  node::Node::Callbacks callbacks;

 private:
  TimeNs run_tasks() {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
    return kNever;
  }

  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<Server> server_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
  ipc::FileDescriptor task_fd_;
  std::thread thread_;
};

}  // namespace ucm::daemon
