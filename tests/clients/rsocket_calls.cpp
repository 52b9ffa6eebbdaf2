// rsocket_calls ADDRESS [no-fork | accept-for-ever | receive-for-ever]: what the calls of rsockets do, in one process
// and with children of it.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::uint16_t kPort = 7990;
constexpr std::uint16_t kFreePort = 7989;

int check(int result, const char* what) {
  if (result < 0) die(std::string(what) + ": " + std::strerror(errno));
  return result;
}

// An rsocket that is closed at the end.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Address& of, int type) : fd_(check(rsocket(of.get()->sa_family, type, 0), "rsocket")) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { close(); }
  operator int() const { return fd_; }
  void close() {
    if (fd_ >= 0) succeed(rclose(std::exchange(fd_, -1)), "rclose");
  }

 private:
  int fd_;
};

void set_nonblocking(int fd) { succeed(rfcntl(fd, F_SETFL, O_NONBLOCK), "rfcntl"); }

Socket listen_at(const Address& address, int backlog = 1024) {
  Socket listener(address, SOCK_STREAM);
  const int on = 1;
  succeed(rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), "SO_REUSEADDR");
  succeed(rbind(listener, address.get(), address.size()), "rbind");
  succeed(rlisten(listener, backlog), "rlisten");
  return listener;
}

struct Pair {
  Socket client;
  Socket server;
};

// In one thread: the connection goes on while nobody calls for the client.
Pair connect_to_self(const Address& address, int listener) {
  Socket client(address, SOCK_STREAM);
  set_nonblocking(client);
  expect_errno(rconnect(client, address.get(), address.size()), EINPROGRESS, "rconnect");
  Socket server(check(raccept(listener, nullptr, nullptr), "raccept"));
  pollfd writable{client, POLLOUT, 0};
  require(rpoll(&writable, 1, -1) == 1 && writable.revents == POLLOUT, "a connected socket is writable");
  succeed(rfcntl(client, F_SETFL, 0), "rfcntl");
  return {std::move(client), std::move(server)};
}

Pair make_pair(const Address& address) {
  const Socket listener = listen_at(address);
  return connect_to_self(address, listener);
}

int socket_error(int fd) {
  int error = -1;
  socklen_t size = sizeof(error);
  succeed(rgetsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size), "SO_ERROR");
  return error;
}

std::vector<std::uint8_t> pattern(std::size_t size, unsigned seed) {
  std::vector<std::uint8_t> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * 31 + i / 997 + seed);
  return bytes;
}

void send_all(int fd, const std::vector<std::uint8_t>& bytes) {
  require(rsend(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "rsend");
}

void expect_bytes(int fd, const std::vector<std::uint8_t>& expected) {
  std::vector<std::uint8_t> bytes(expected.size());
  const ssize_t got = rrecv(fd, bytes.data(), bytes.size(), MSG_WAITALL);
  require(got == static_cast<ssize_t>(bytes.size()), "rrecv: " + std::to_string(got));
  require(bytes == expected, "what was sent is what is received");
}

void expect_end(int fd) {
  char byte = 0;
  require(rrecv(fd, &byte, 1, 0) == 0, "the end of the stream");
}

// --- Connections ---

void one_thread_connects_to_itself(const Address& address) {
  Pair pair = make_pair(address);
  send_all(pair.client, pattern(1000, 1));
  expect_bytes(pair.server, pattern(1000, 1));
  sockaddr_storage peer{};
  sockaddr_storage own{};
  socklen_t size = sizeof(peer);
  succeed(rgetpeername(pair.server, reinterpret_cast<sockaddr*>(&peer), &size), "rgetpeername");
  size = sizeof(own);
  succeed(rgetsockname(pair.client, reinterpret_cast<sockaddr*>(&own), &size), "rgetsockname");
  require(std::memcmp(&peer, &own, size) == 0, "both sides name the client alike");
  socklen_t whole = 0;
  succeed(rgetsockname(pair.client, nullptr, &whole), "rgetsockname");
  require(whole == address.size(), "the size of a name");
}

void nobody_listens(const Address& free_address) {
  Socket blocking(free_address, SOCK_STREAM);
  expect_errno(rconnect(blocking, free_address.get(), free_address.size()), ECONNREFUSED, "rconnect");
  Socket waiting(free_address, SOCK_STREAM);
  set_nonblocking(waiting);
  expect_errno(rconnect(waiting, free_address.get(), free_address.size()), EINPROGRESS, "rconnect");
  pollfd failed{waiting, POLLOUT, 0};
  require(rpoll(&failed, 1, -1) == 1 && (failed.revents & POLLERR) != 0, "a refused socket has an error");
  require(socket_error(waiting) == ECONNREFUSED && socket_error(waiting) == 0, "SO_ERROR tells once");
}

void accepting_without_waiting(const Address& address) {
  const Socket listener = listen_at(address);
  set_nonblocking(listener);
  expect_errno(raccept(listener, nullptr, nullptr), EAGAIN, "raccept");
  Socket client(address, SOCK_STREAM);
  set_nonblocking(client);
  expect_errno(rconnect(client, address.get(), address.size()), EINPROGRESS, "rconnect");
  pollfd request{listener, POLLIN, 0};
  require(rpoll(&request, 1, -1) == 1 && request.revents == POLLIN, "a request makes a listener readable");
  Socket server(check(raccept(listener, nullptr, nullptr), "raccept"));
  send_all(server, pattern(10, 3));
  succeed(rfcntl(client, F_SETFL, 0), "rfcntl");
  expect_bytes(client, pattern(10, 3));
}

// What is not an rsocket is rejected, and the listener goes on.
void strangers_are_rejected(const Address& address) {
  const Socket listener = listen_at(address);
  set_nonblocking(listener);
  {
    const Channel channel = open_channel();
    const IdPointer id = make_id(channel);
    resolve(channel, id.get(), address);
    create_qp(id.get());
    rdma_conn_param param{};
    succeed(rdma_connect(id.get(), &param), "rdma_connect");
    pollfd asked[2] = {{channel->fd, POLLIN, 0}, {listener, POLLIN, 0}};
    while ((asked[0].revents & POLLIN) == 0) check(rpoll(asked, 2, -1), "rpoll");
    rdma_cm_event* event = nullptr;
    succeed(rdma_get_cm_event(channel.get(), &event), "rdma_get_cm_event");
    require(event->event == RDMA_CM_EVENT_REJECTED, std::string("told: ") + rdma_event_str(event->event));
    rdma_ack_cm_event(event);
  }
  succeed(rfcntl(listener, F_SETFL, 0), "rfcntl");
  const Pair pair = connect_to_self(address, listener);
}

void thousands_of_sockets(const Address& address) {
  std::vector<Socket> sockets;
  for (int i = 0; i < 1100; ++i) sockets.emplace_back(address, SOCK_STREAM);
  const Socket listener = listen_at(address);
  std::vector<Pair> pairs;
  for (int i = 0; i < 70; ++i) pairs.push_back(connect_to_self(address, listener));
  for (unsigned i = 0; i < pairs.size(); ++i) send_all(pairs[i].client, pattern(100, i));
  for (unsigned i = 0; i < pairs.size(); ++i) expect_bytes(pairs[i].server, pattern(100, i));
}

void threads_open_and_close(const Address& address) {
  const Socket listener = listen_at(address);
  constexpr int kThreads = 4;
  constexpr int kRounds = 20;
  std::atomic<int> echoes{0};
  std::thread server([&] {
    for (int i = 0; i < kThreads * kRounds; ++i) {
      Socket peer(check(raccept(listener, nullptr, nullptr), "raccept"));
      std::uint8_t byte = 0;
      require(rrecv(peer, &byte, 1, 0) == 1 && rsend(peer, &byte, 1, 0) == 1, "echo");
    }
  });
  std::vector<std::thread> clients;
  for (int thread = 0; thread < kThreads; ++thread) {
    clients.emplace_back([&, thread] {
      for (int i = 0; i < kRounds; ++i) {
        Socket unused(address, i % 2 == 0 ? SOCK_STREAM : SOCK_DGRAM);
        Socket client(address, SOCK_STREAM);
        succeed(rconnect(client, address.get(), address.size()), "rconnect");
        const auto byte = static_cast<std::uint8_t>(thread * kRounds + i);
        std::uint8_t echo = 0;
        require(rsend(client, &byte, 1, 0) == 1 && rrecv(client, &echo, 1, 0) == 1 && echo == byte, "an echo");
        ++echoes;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  server.join();
  require(echoes == kThreads * kRounds, "every echo");
}

// --- Data ---

void both_directions_at_once(const Address& address) {
  Pair pair = make_pair(address);
  const auto there = pattern(3'000'000, 5);
  const auto back = pattern(3'000'000, 6);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { send_all(pair.client, there); });
  threads.emplace_back([&] { expect_bytes(pair.server, there); });
  threads.emplace_back([&] { send_all(pair.server, back); });
  threads.emplace_back([&] { expect_bytes(pair.client, back); });
  for (std::thread& thread : threads) thread.join();
}

// One thread waits in rpoll for what only another thread's call takes in.
void a_poller_beside_a_writer(const Address& address) {
  Pair pair = make_pair(address);
  constexpr int kRounds = 200;
  std::thread poller([&] {
    for (int i = 0; i < kRounds; ++i) {
      pollfd readable{pair.client, POLLIN, 0};
      require(rpoll(&readable, 1, -1) == 1 && readable.revents == POLLIN, "readable");
      expect_bytes(pair.client, pattern(1, static_cast<unsigned>(i)));
      send_all(pair.client, {1});
    }
  });
  std::atomic<bool> done{false};
  std::thread writer([&] {
    const auto bytes = pattern(100'000, 0);
    while (!done) send_all(pair.client, bytes);
    succeed(rshutdown(pair.client, SHUT_WR), "rshutdown");
  });
  std::thread reader([&] {
    std::vector<std::uint8_t> bytes(1 << 16);
    while (check(static_cast<int>(rrecv(pair.server, bytes.data(), bytes.size(), 0)), "rrecv") != 0) {
    }
  });
  for (int i = 0; i < kRounds; ++i) send_all(pair.server, pattern(1, static_cast<unsigned>(i)));
  poller.join();
  done = true;
  writer.join();
  reader.join();
}

void flags_and_vectors(const Address& address) {
  Pair pair = make_pair(address);
  std::array<std::uint8_t, 8> bytes{};
  expect_errno(static_cast<int>(rrecv(pair.server, bytes.data(), 1, MSG_DONTWAIT)), EAGAIN, "rrecv");
  std::array<std::uint8_t, 3> first = {1, 2, 3};
  std::array<std::uint8_t, 5> second = {4, 5, 6, 7, 8};
  const std::array<iovec, 3> parts = {iovec{first.data(), 3}, iovec{nullptr, 0}, iovec{second.data(), 5}};
  require(rwritev(pair.client, parts.data(), 3) == 8, "rwritev");
  pollfd readable{pair.server, POLLIN, 0};
  require(rpoll(&readable, 1, -1) == 1, "rpoll");
  while (rrecv(pair.server, bytes.data(), 8, MSG_PEEK) != 8) {
  }
  require(bytes[0] == 1 && bytes[7] == 8, "peeked bytes");
  first.fill(0);
  second.fill(0);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = 3;
  require(rrecvmsg(pair.server, &message, MSG_WAITALL) == 8, "rrecvmsg");
  require(first[0] == 1 && second[4] == 8, "scattered bytes");
  require(rsendmsg(pair.client, &message, 0) == 8, "rsendmsg");
  require(rpoll(&readable, 1, -1) == 1 && rreadv(pair.server, parts.data(), 1) == 3, "rreadv");
  require(rread(pair.server, second.data(), 5) == 5, "rread");
  require(first[2] == 3 && second[4] == 8, "bytes read");
  require(rwrite(pair.server, second.data(), 5) == 5 && rrecv(pair.client, bytes.data(), 5, MSG_WAITALL) == 5,
          "rwrite");
  require(bytes[0] == 4 && bytes[4] == 8, "bytes written");
  expect_errno(static_cast<int>(rsendto(pair.client, "x", 1, 0, address.get(), address.size())), EISCONN, "rsendto");
  // A full peer.
  const auto much = pattern(1'000'000, 9);
  const ssize_t sent = rsend(pair.client, much.data(), much.size(), MSG_DONTWAIT);
  require(sent > 0 && sent < static_cast<ssize_t>(much.size()), "some of it goes");
  while (rsend(pair.client, much.data(), 1, MSG_DONTWAIT) == 1) {
  }
  require(errno == EAGAIN, "then no more");
}

void select_with_other_descriptors(const Address& address) {
  Pair pair = make_pair(address);
  std::array<int, 2> ends{};
  succeed(pipe(ends.data()), "pipe");
  const int most = std::max({ends[0], int{pair.client}, int{pair.server}}) + 1;
  fd_set readable;
  const auto look = [&](timeval timeout) {
    FD_ZERO(&readable);
    for (const int fd : {ends[0], int{pair.client}, int{pair.server}}) FD_SET(fd, &readable);
    return rselect(most, &readable, nullptr, nullptr, &timeout);
  };
  require(look({0, 1000}) == 0, "nothing is readable");
  require(write(ends[1], "x", 1) == 1, "write");
  require(look({20, 0}) == 1 && FD_ISSET(ends[0], &readable), "the pipe is readable");
  send_all(pair.client, {1});
  require(read(ends[0], &readable, 1) == 1, "read");
  require(look({20, 0}) == 1 && FD_ISSET(pair.server, &readable), "the rsocket is readable");
  pollfd other{ends[0], POLLIN, 0};
  require(rpoll(&other, 1, 0) == 0, "rpoll knows plain descriptors");
  ::close(ends[0]);
  ::close(ends[1]);
}

void mapped_memory(const Address& address) {
  const Socket listener = listen_at(address);
  const int entries = 2;
  succeed(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof(entries)), "RDMA_IOMAPSIZE");
  Pair pair = connect_to_self(address, listener);
  std::vector<std::uint8_t> memory(200'000);
  require(riomap(pair.client, memory.data(), memory.size(), PROT_WRITE, 0, 5000) == 5000, "riomap");
  send_all(pair.client, {1});
  expect_bytes(pair.server, {1});
  const auto bytes = pattern(memory.size() + 10, 8);
  require(riowrite(pair.server, bytes.data(), bytes.size(), 5000, 0) == memory.size(),
          "riowrite ends with the mapping");
  send_all(pair.server, {2});
  expect_bytes(pair.client, {2});
  require(std::equal(memory.begin(), memory.end(), bytes.begin()), "what was written");
  succeed(riounmap(pair.client, memory.data(), memory.size()), "riounmap");
  expect_errno(riounmap(pair.client, memory.data(), memory.size()), EINVAL, "riounmap");
  // The other side takes none.
  expect_errno(static_cast<int>(riomap(pair.server, memory.data(), 10, PROT_WRITE, 0, 0)), ENOMEM, "riomap");
}

// --- Ends ---

void halves_end_alone(const Address& address) {
  Pair pair = make_pair(address);
  send_all(pair.client, pattern(5000, 4));
  succeed(rshutdown(pair.client, SHUT_WR), "rshutdown");
  expect_errno(static_cast<int>(rsend(pair.client, "x", 1, 0)), EPIPE, "rsend");
  expect_bytes(pair.server, pattern(5000, 4));
  expect_end(pair.server);
  send_all(pair.server, pattern(7000, 5));
  expect_bytes(pair.client, pattern(7000, 5));
  pair.server.close();
  expect_end(pair.client);
  pollfd ended{pair.client, POLLIN, 0};
  require(rpoll(&ended, 1, -1) == 1 && (ended.revents & POLLHUP) != 0, "a closed connection hangs up");
}

void data_before_the_end_is_read(const Address& address) {
  Pair pair = make_pair(address);
  send_all(pair.client, pattern(50'000, 4));
  pair.client.close();
  pollfd readable{pair.server, POLLIN, 0};
  require(rpoll(&readable, 1, -1) == 1 && readable.revents == POLLIN, "data, and no hang-up before it");
  expect_bytes(pair.server, pattern(50'000, 4));
  expect_end(pair.server);
  expect_errno(static_cast<int>(rsend(pair.server, "x", 1, 0)), ECONNRESET, "rsend");
}

void closing_ends_calls_of_others(const Address& address) {
  Pair pair = make_pair(address);
  std::atomic<bool> started{false};
  std::thread waiting([&, fd = int{pair.client}] {
    char byte = 0;
    started = true;
    // As after rshutdown(), which rclose() begins with, or as on a descriptor that is gone.
    const ssize_t got = rrecv(fd, &byte, 1, 0);
    require(got == 0 || (got == -1 && errno == EBADF), "rrecv ends");
  });
  while (!started) std::this_thread::yield();
  pair.client.close();
  waiting.join();
  expect_errno(rclose(9999), EBADF, "rclose");
}

// Runs `child` in a child process; returns its ID.
pid_t in_child(const std::function<void()>& child) {
  const pid_t pid = check(fork(), "fork");
  if (pid != 0) return pid;
  child();
  _exit(0);
}

void expect_exit(pid_t child, int status) {
  int got = 0;
  check(waitpid(child, &got, 0), "waitpid");
  require(got == status, "the child's end: " + std::to_string(got));
}

void a_killed_peer_resets(const Address& address) {
  const Socket listener = listen_at(address);
  const pid_t child = in_child([&] {
    Socket client(address, SOCK_STREAM);
    succeed(rconnect(client, address.get(), address.size()), "rconnect");
    send_all(client, pattern(1000, 7));
    char byte = 0;
    rrecv(client, &byte, 1, 0);  // for ever
  });
  const Socket server(check(raccept(listener, nullptr, nullptr), "raccept"));
  std::array<std::uint8_t, 1> first{};
  require(rrecv(server, first.data(), 1, 0) == 1, "rrecv");
  succeed(kill(child, SIGKILL), "kill");
  expect_exit(child, SIGKILL);
  std::vector<std::uint8_t> rest(999);
  require(rrecv(server, rest.data(), rest.size(), MSG_WAITALL) == 999, "what had arrived");
  expect_errno(static_cast<int>(rrecv(server, rest.data(), 1, 0)), ECONNRESET, "rrecv");
  require(socket_error(server) == ECONNRESET, "SO_ERROR");
  expect_errno(static_cast<int>(rsend(server, "x", 1, 0)), ECONNRESET, "rsend");
}

void a_child_leaves_the_parents_sockets_alone(const Address& address, const Address& elsewhere) {
  const Socket listener = listen_at(address);
  Pair pair = connect_to_self(address, listener);
  const pid_t child = in_child([&] {
    char byte = 0;
    expect_errno(static_cast<int>(rrecv(pair.client, &byte, 1, 0)), ENOTCONN, "rrecv");
    pair.client.close();
    pair.server.close();
    succeed(rclose(listener), "rclose");
    Pair own = make_pair(elsewhere);
    send_all(own.client, {1});
    expect_bytes(own.server, {1});
  });
  expect_exit(child, 0);
  send_all(pair.client, pattern(1000, 2));
  expect_bytes(pair.server, pattern(1000, 2));
  const Pair another = connect_to_self(address, listener);
}

// --- Options ---

void options(const Address& address) {
  Socket one(address, SOCK_STREAM);
  const auto get = [&](int level, int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    succeed(rgetsockopt(one, level, name, &value, &size), "rgetsockopt");
    return value;
  };
  const auto set = [&](int level, int name, int value) { return rsetsockopt(one, level, name, &value, sizeof(value)); };
  succeed(set(SOL_SOCKET, SO_RCVBUF, 50'000), "SO_RCVBUF");
  succeed(set(SOL_SOCKET, SO_SNDBUF, 60'000), "SO_SNDBUF");
  require(get(SOL_SOCKET, SO_RCVBUF) == 100'000 && get(SOL_SOCKET, SO_SNDBUF) == 120'000, "buffers as Linux counts");
  succeed(set(IPPROTO_TCP, TCP_NODELAY, 1), "TCP_NODELAY");
  require(get(IPPROTO_TCP, TCP_NODELAY) == 1, "TCP_NODELAY");
  succeed(set(SOL_RDMA, RDMA_SQSIZE, 100), "RDMA_SQSIZE");
  succeed(set(SOL_RDMA, RDMA_RQSIZE, 1), "RDMA_RQSIZE");
  require(get(SOL_RDMA, RDMA_SQSIZE) == 100 && get(SOL_RDMA, RDMA_RQSIZE) == 16, "queue sizes");
  expect_errno(set(SOL_SOCKET, SO_PEEK_OFF, 1), ENOTSUP, "an unknown option");
  expect_errno(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP, "rsocket");
  expect_errno(rsocket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ENOTSUP, "rsocket");
  expect_errno(rsetsockopt(9999, SOL_SOCKET, SO_RCVBUF, nullptr, 0), EBADF, "rsetsockopt");
  Pair pair = make_pair(address);
  one = std::move(pair.client);
  expect_errno(set(SOL_RDMA, RDMA_SQSIZE, 100), EINVAL, "too late");
  const int before = get(SOL_SOCKET, SO_RCVBUF);
  succeed(set(SOL_SOCKET, SO_RCVBUF, 77'777), "SO_RCVBUF");
  require(get(SOL_SOCKET, SO_RCVBUF) == before, "a buffer in use keeps its size");
}

// --- Datagrams ---

void datagrams(const Address& address) {
  const Socket service(address, SOCK_DGRAM);
  succeed(rbind(service, address.get(), address.size()), "rbind");
  const Socket client(address, SOCK_DGRAM);
  std::vector<std::uint8_t> bytes(3000);
  for (unsigned i = 0; i < 200; ++i) {
    const std::size_t size = 1 + i * 10;
    const auto sent = pattern(size, i);
    require(rsendto(client, sent.data(), size, 0, address.get(), address.size()) == static_cast<ssize_t>(size),
            "rsendto");
    sockaddr_storage from{};
    socklen_t from_size = sizeof(from);
    pollfd readable{service, POLLIN, 0};
    if (rpoll(&readable, 1, 1000) == 0) continue;  // lost
    const ssize_t got =
        rrecvfrom(service, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &from_size);
    require(got == static_cast<ssize_t>(size) && std::equal(sent.begin(), sent.end(), bytes.begin()),
            "a whole datagram");
    require(rsendto(service, bytes.data(), size, 0, reinterpret_cast<sockaddr*>(&from), from_size) == got, "an answer");
    pollfd answered{client, POLLIN, 0};
    if (rpoll(&answered, 1, 1000) == 0) continue;
    require(rrecv(client, bytes.data(), bytes.size(), MSG_PEEK) == got, "peeking");
    require(rrecv(client, bytes.data(), 1, 0) == 1 && bytes[0] == sent[0], "the rest of a datagram is gone");
  }
  expect_errno(static_cast<int>(rsendto(client, bytes.data(), bytes.size(), 0, address.get(), address.size())),
               EMSGSIZE, "rsendto");
  expect_errno(static_cast<int>(rrecv(client, bytes.data(), 1, MSG_DONTWAIT)), EAGAIN, "rrecv");
  expect_errno(static_cast<int>(rsend(client, "x", 1, 0)), EDESTADDRREQ, "rsend");
  expect_errno(rlisten(client, 1), EOPNOTSUPP, "rlisten");
}

// --- For tests that end the node meanwhile ---

void accept_for_ever(const std::string& host) {
  const Socket listener = listen_at(Address(host, kPort));
  std::puts("waiting");
  std::fflush(stdout);
  check(raccept(listener, nullptr, nullptr), "raccept");
}

void receive_for_ever(const std::string& host) {
  const Pair pair = make_pair(Address(host, kFreePort));
  std::puts("waiting");
  std::fflush(stdout);
  char byte = 0;
  check(static_cast<int>(rrecv(pair.client, &byte, 1, 0)), "rrecv");
}

// The last name printed is that of the test that failed.
template <class Test, class... At>
void run(const char* name, Test test, const At&... at) {
  std::printf("%s\n", name);
  std::fflush(stdout);
  test(at...);
}

}  // namespace

int main(int count, char** arguments) {
  require(count == 2 || count == 3, "usage: rsocket_calls ADDRESS [no-fork | accept-for-ever | receive-for-ever]");
  const std::string mode = count == 3 ? arguments[2] : "";
  if (mode == "accept-for-ever") return accept_for_ever(arguments[1]), 0;
  if (mode == "receive-for-ever") return receive_for_ever(arguments[1]), 0;
  const Address address(arguments[1], kPort);
  const Address unused(arguments[1], kFreePort);
  rlimit files{};
  succeed(getrlimit(RLIMIT_NOFILE, &files), "getrlimit");
  files.rlim_cur = files.rlim_max;
  succeed(setrlimit(RLIMIT_NOFILE, &files), "setrlimit");

  run("one_thread_connects_to_itself", one_thread_connects_to_itself, address);
  run("nobody_listens", nobody_listens, unused);
  run("accepting_without_waiting", accepting_without_waiting, address);
  run("strangers_are_rejected", strangers_are_rejected, address);
  run("flags_and_vectors", flags_and_vectors, address);
  run("select_with_other_descriptors", select_with_other_descriptors, address);
  run("mapped_memory", mapped_memory, address);
  run("halves_end_alone", halves_end_alone, address);
  run("data_before_the_end_is_read", data_before_the_end_is_read, address);
  run("closing_ends_calls_of_others", closing_ends_calls_of_others, address);
  run("options", options, address);
  run("datagrams", datagrams, address);
  run("both_directions_at_once", both_directions_at_once, address);
  run("a_poller_beside_a_writer", a_poller_beside_a_writer, address);
  run("threads_open_and_close", threads_open_and_close, address);
  if (mode != "no-fork") {
    run("a_killed_peer_resets", a_killed_peer_resets, address);
    run("a_child_leaves_the_parents_sockets_alone", a_child_leaves_the_parents_sockets_alone, address, unused);
  }
  run("thousands_of_sockets", thousands_of_sockets, address);
  std::puts("all good");
  return 0;
}
