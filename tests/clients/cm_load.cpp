// cm_load server LOCAL PORT: accepts connections and sends every message back.
// cm_load client REMOTE PORT HELD IN_SET_UP [MESSAGES]: holds HELD connections over which messages go to and fro, and
// beside them has IN_SET_UP others being set up all the time, each of which ends as soon as it is there.
//
// Now and then the client tells how it goes on. What it asserts: a connection that is held never ends, and each message
// comes back once, in order; one that is set up is there in the end, or an error event tells that it is not. On
// SIGTERM, or after so many MESSAGES, it waits for the last set-up, takes everything down, and says "done"; so does the
// server.
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr int kTimeoutMs = 10'000;
constexpr int kBacklog = 8192;
// Messages, set-ups before all are held, and ends of connections that are under way at once.
constexpr std::size_t kWindow = 64;
constexpr auto kTellEvery = std::chrono::milliseconds(100);

using Completions = std::unique_ptr<ibv_comp_channel, decltype(&ibv_destroy_comp_channel)>;

struct Message {
  std::uint64_t connection = 0;
  std::uint64_t number = 0;
};

// A connection, with room for a message each way.
struct Connection {
  IdPointer id;
  bool held = false;
  bool ending = false;
  std::uint64_t sent = 0;
  std::array<Message, 2> messages;
  Message& out() { return messages[0]; }
  Message& in() { return messages[1]; }
  ibv_mr* memory = nullptr;
};

class End {
 public:
  End() : channel_(open_channel()), completions_(nullptr, ibv_destroy_comp_channel) {
    succeed(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), "fcntl");
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    stop_fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
    require(stop_fd_ >= 0, "signalfd");
  }
  virtual ~End() = default;

 protected:
  virtual void on_event(const Told& told) = 0;
  virtual void on_message(Connection& connection) = 0;

  // Serves what there is, or waits for it. False once SIGTERM has come.
  bool turn() {
    const bool had_events = serve_events();
    if (serve_queue() || had_events) return !stopped_;
    std::array<pollfd, 3> wait{pollfd{.fd = channel_->fd, .events = POLLIN, .revents = 0},
                               pollfd{.fd = completions_ ? completions_->fd : -1, .events = POLLIN, .revents = 0},
                               pollfd{.fd = stopped_ ? -1 : stop_fd_, .events = POLLIN, .revents = 0}};
    poll(wait.data(), wait.size(), -1);
    stopped_ = stopped_ || wait[2].revents != 0;
    if (wait[1].revents != 0) take_completion_event();
    return !stopped_;
  }

  // The first one says on which device.
  void open_queue(ibv_context* verbs) {
    if (queue_ != nullptr) return;
    completions_.reset(ibv_create_comp_channel(verbs));
    require(completions_ != nullptr, "ibv_create_comp_channel");
    succeed(fcntl(completions_->fd, F_SETFL, O_NONBLOCK), "fcntl");
    queue_ = ibv_create_cq(verbs, 1 << 16, nullptr, completions_.get(), 0);
    require(queue_ != nullptr, "ibv_create_cq");
    succeed(ibv_req_notify_cq(queue_, 0), "ibv_req_notify_cq");
  }

  Connection& add(IdPointer id) {
    auto connection = std::make_unique<Connection>();
    connection->id = std::move(id);
    Connection& added = *connection;
    added.id->context = &added;
    connections_.emplace(&added, std::move(connection));
    return added;
  }

  void make_qp(Connection& connection) {
    open_queue(connection.id->verbs);
    create_qp(connection.id.get(), queue_);
    connection.memory = rdma_reg_msgs(connection.id.get(), &connection.messages, sizeof connection.messages);
    require(connection.memory != nullptr, "rdma_reg_msgs");
    post_receive(connection);
  }

  void post_receive(Connection& c) {
    succeed(rdma_post_recv(c.id.get(), &c, &c.in(), sizeof c.in(), c.memory), "rdma_post_recv");
  }
  void post_send(Connection& c) {
    succeed(rdma_post_send(c.id.get(), &c, &c.out(), sizeof c.out(), c.memory, 0), "rdma_post_send");
  }

  void remove(Connection& connection) {
    // What its QP has still to tell is not of this world any more.
    if (connection.id->qp != nullptr) rdma_destroy_qp(connection.id.get());
    if (connection.memory != nullptr) ibv_dereg_mr(connection.memory);
    connections_.erase(&connection);
  }

  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  Channel channel_;

 private:
  // Both: false when there was nothing.
  bool serve_events() {
    rdma_cm_event* event = nullptr;
    std::size_t served = 0;
    for (; served < kWindow && rdma_get_cm_event(channel_.get(), &event) == 0; ++served) {
      const Told told{event->event, event->status, event->id};
      rdma_ack_cm_event(event);
      on_event(told);
    }
    return served != 0;
  }

  bool serve_queue() {
    if (queue_ == nullptr) return false;
    std::array<ibv_wc, 32> found;
    const int count = ibv_poll_cq(queue_, static_cast<int>(found.size()), found.data());
    require(count >= 0, "ibv_poll_cq");
    for (int i = 0; i < count; ++i) serve(found[static_cast<std::size_t>(i)]);
    return count != 0;
  }

  void serve(const ibv_wc& done) {
    auto* const connection = reinterpret_cast<Connection*>(done.wr_id);
    if (!connections_.contains(connection)) return;
    if (done.status == IBV_WC_WR_FLUSH_ERR && (connection->ending || !connection->held)) return;
    if (done.status != IBV_WC_SUCCESS) die(std::string("a message: ") + ibv_wc_status_str(done.status));
    if (done.opcode == IBV_WC_RECV) on_message(*connection);
  }

  void take_completion_event() {
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(completions_.get(), &queue, &context) != 0) return;
    ibv_ack_cq_events(queue, 1);
    succeed(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
  }

  Completions completions_;
  ibv_cq* queue_ = nullptr;
  int stop_fd_ = -1;
  bool stopped_ = false;
};

class Server final : End {
 public:
  void run(const std::string& local, std::uint16_t port) {
    const IdPointer listener = make_id(channel_);
    succeed(rdma_bind_addr(listener.get(), Address(local, port).get()), "rdma_bind_addr");
    succeed(rdma_listen(listener.get(), kBacklog), "rdma_listen");
    while (turn()) continue;
    while (!connections_.empty()) remove(*connections_.begin()->first);
    std::puts("done");
  }

 private:
  void on_event(const Told& told) override {
    if (told.type == RDMA_CM_EVENT_CONNECT_REQUEST) return accept(IdPointer(told.id));
    auto& connection = *static_cast<Connection*>(told.id->context);
    if (told.type == RDMA_CM_EVENT_ESTABLISHED || told.type == RDMA_CM_EVENT_TIMEWAIT_EXIT) return;
    if (told.type == RDMA_CM_EVENT_DISCONNECTED) rdma_disconnect(told.id);
    remove(connection);
  }

  void accept(IdPointer id) {
    Connection& connection = add(std::move(id));
    make_qp(connection);
    // Whose peer has gone meanwhile.
    if (rdma_accept(connection.id.get(), nullptr) != 0) remove(connection);
  }

  void on_message(Connection& connection) override {
    connection.out() = connection.in();
    post_receive(connection);
    post_send(connection);
  }
};

class Client final : End {
 public:
  Client(const std::string& remote, std::uint16_t port, std::size_t held, std::size_t in_set_up,
         std::size_t messages_max)
      : to_(remote, port), held_(held), in_set_up_(in_set_up), messages_max_(messages_max) {}

  void run() {
    while (up_.size() < held_) {
      while (connections_.size() < held_ && in_the_air_ < kWindow) begin(true);
      if (!turn()) die("stopped before all connections are held");
    }
    idle_.assign(up_.begin(), up_.end());
    while (!idle_.empty() && messages_in_the_air_ < kWindow) send_next();
    do {
      while (in_the_air_ < in_set_up_) begin(false);
      tell_now_and_then();
    } while (turn() && messages_ < messages_max_);
    stopping_ = true;
    while (in_the_air_ != 0 || messages_in_the_air_ != 0) turn();
    take_down();
    tell("done");
  }

 private:
  void begin(bool held) {
    Connection& connection = add(make_id(channel_));
    connection.held = held;
    ++in_the_air_;
    succeed(rdma_resolve_addr(connection.id.get(), nullptr, to_.get(), kTimeoutMs), "rdma_resolve_addr");
  }

  void on_event(const Told& told) override {
    auto& connection = *static_cast<Connection*>(told.id->context);
    switch (told.type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        return succeed(rdma_resolve_route(told.id, kTimeoutMs), "rdma_resolve_route");
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        make_qp(connection);
        return succeed(rdma_connect(told.id, nullptr), "rdma_connect");
      case RDMA_CM_EVENT_ESTABLISHED:
        return on_established(connection);
      case RDMA_CM_EVENT_DISCONNECTED:
        return on_disconnected(connection);
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return;
      default:
        if (connection.held) die(std::string("a connection to be held: ") + rdma_event_str(told.type));
        ++failed_;
        --in_the_air_;
        return remove(connection);
    }
  }

  void on_established(Connection& connection) {
    if (connection.held) {
      --in_the_air_;
      up_.push_back(&connection);
    } else {
      ++set_up_;
      end(connection);
    }
  }

  void end(Connection& connection) {
    connection.ending = true;
    succeed(rdma_disconnect(connection.id.get()), "rdma_disconnect");
  }

  // The peer has confirmed the end, or has ended it.
  void on_disconnected(Connection& connection) {
    if (!connection.ending) die("a connection that is held has ended");
    --in_the_air_;
    remove(connection);
  }

  // On the one that has been without a message for the longest time.
  void send_next() {
    Connection& connection = *idle_.front();
    idle_.pop_front();
    connection.out() = {.connection = reinterpret_cast<std::uintptr_t>(&connection), .number = ++connection.sent};
    post_send(connection);
    ++messages_in_the_air_;
  }

  void on_message(Connection& connection) override {
    const Message &sent = connection.out(), &back = connection.in();
    if (back.connection != sent.connection || back.number != sent.number) die("another message than the one sent");
    ++messages_;
    --messages_in_the_air_;
    post_receive(connection);
    idle_.push_back(&connection);
    if (!stopping_) send_next();
  }

  void take_down() {
    while (!up_.empty() || in_the_air_ != 0) {
      for (; !up_.empty() && in_the_air_ < kWindow; up_.pop_back(), ++in_the_air_) end(*up_.back());
      turn();
    }
  }

  void tell_now_and_then() {
    const auto now = std::chrono::steady_clock::now();
    if (now < tell_next_) return;
    tell_next_ = now + kTellEvery;
    tell("goes on");
  }
  void tell(const char* what) {
    std::printf("%s: %zu messages, %zu set up, %zu failed\n", what, messages_, set_up_, failed_);
    std::fflush(stdout);
  }

  Address to_;
  const std::size_t held_, in_set_up_, messages_max_;
  std::size_t in_the_air_ = 0;  // being set up or taken down
  std::vector<Connection*> up_;
  std::deque<Connection*> idle_;
  std::size_t messages_in_the_air_ = 0;
  std::size_t messages_ = 0, set_up_ = 0, failed_ = 0;
  bool stopping_ = false;
  std::chrono::steady_clock::time_point tell_next_{};
};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int position) { return std::strtoul(argv[position], nullptr, 10); };
  const std::string side = argc > 1 ? argv[1] : "";
  if (side == "server" && argc == 4) {
    Server().run(argv[2], static_cast<std::uint16_t>(number(3)));
  } else if (side == "client" && (argc == 6 || argc == 7)) {
    Client(argv[2], static_cast<std::uint16_t>(number(3)), number(4), number(5), argc == 7 ? number(6) : SIZE_MAX)
        .run();
  } else {
    die("usage: cm_load server LOCAL PORT | client REMOTE PORT HELD IN_SET_UP [MESSAGES]");
  }
  return 0;
}
