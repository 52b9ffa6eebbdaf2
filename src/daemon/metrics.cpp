#include "daemon/metrics.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "net/socket_address.h"

namespace ucm::daemon {
namespace {

constexpr TimeNs kTextAgeNs = 100 * kNanosecondsPerMillisecond;
// After what a full socket is written to again, and a listener without descriptors is served again.
constexpr TimeNs kRetryNs = 10 * kNanosecondsPerMillisecond;
constexpr TimeNs kListenAgainNs = 100 * kNanosecondsPerMillisecond;
constexpr int kBacklog = 16;

std::string answer_of(const char* status, const std::string& body, const char* more = "") {
  return std::string("HTTP/1.1 ") + status +
         "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\nConnection: close\r\n" + more + "\r\n" + body;
}

// Its lines end with an empty one.
bool is_complete(const std::string& request) {
  return request.find("\r\n\r\n") != std::string::npos || request.find("\n\n") != std::string::npos;
}

// The method, the target, the protocol; all empty when the line is another one.
std::array<std::string_view, 3> request_line(std::string_view request) {
  std::string_view line = request.substr(0, request.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return {};
  return {line.substr(0, first), line.substr(first + 1, last - first - 1), line.substr(last + 1)};
}

}  // namespace

Result<MetricsAddress> parse_metrics_address(const std::string& text) {
  const auto wrong = [&] { return fail(EINVAL, text + " is no PORT, ADDRESS:PORT or [ADDRESS]:PORT"); };
  const std::size_t colon = text.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string port = text.substr(colon == std::string::npos ? 0 : colon + 1);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);

  MetricsAddress result;
  in_addr ipv4{};
  in6_addr ipv6{};
  if (!brackets && inet_pton(AF_INET, host.c_str(), &ipv4) == 1) {
    result.address = net::from_in_addr(ipv4);
  } else if (brackets && inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) {
    result.address = net::from_in6_addr(ipv6);
  } else {
    return wrong();
  }
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (error != std::errc() || end != port.data() + port.size() || result.port == 0) return wrong();
  return result;
}

MetricsServer::MetricsServer(net::EventLoop& loop, std::function<std::string()> text)
    : loop_(loop), make_text_(std::move(text)) {
  loop_.add_hook([this](TimeNs now) { return on_turn(now); });
}

MetricsServer::~MetricsServer() {
  while (!clients_.empty()) end(clients_.begin());
  if (listener_ && listen_again_ == kNever) loop_.remove(listener_.get());
}

Result<void> MetricsServer::listen(const MetricsAddress& address) {
  const std::string where =
      "cannot serve metrics on " + net::to_string(address.address) + " port " + std::to_string(address.port) + ": ";
  net::SocketAddress bound;
  const socklen_t size = net::to_socket_address(address.address, address.port, 0, bound);
  listener_.reset(socket(bound.generic.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!listener_ || setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener_.get(), &bound.generic, size) != 0 || ::listen(listener_.get(), kBacklog) != 0) {
    const int code = errno;
    listener_.reset();
    return fail(code, where + std::generic_category().message(code));
  }
  return watch_listener();
}

Result<void> MetricsServer::watch_listener() {
  listen_again_ = kNever;
  return loop_.add(listener_.get(), [this](std::uint32_t) { accept_clients(); });
}

void MetricsServer::accept_clients() {
  for (std::size_t i = 0; i < kClientsMax; ++i) {
    ipc::FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      adopt(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // It would be readable again at once.
      loop_.remove(listener_.get());
      listen_again_ = loop_.now() + kListenAgainNs;
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void MetricsServer::adopt(ipc::FileDescriptor socket) {
  if (clients_.size() == kClientsMax) end(clients_.begin());
  const int fd = socket.get();
  clients_.push_back({.socket = std::move(socket), .deadline = loop_.now() + kPatienceNs});
  const auto client = std::prev(clients_.end());
  if (!loop_.add(fd, [this, client](std::uint32_t) { read(client); })) clients_.erase(client);
}

void MetricsServer::end(Clients::iterator client) {
  loop_.remove(client->socket.get());
  clients_.erase(client);
}

void MetricsServer::read(Clients::iterator client) {
  std::array<char, 1024> block;
  const ssize_t size = recv(client->socket.get(), block.data(), block.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // Nobody there, or more than there is to say.
  if (size <= 0 || !client->answer.empty()) return end(client);
  client->request.append(block.data(), static_cast<std::size_t>(size));
  if (!is_complete(client->request)) {
    if (client->request.size() < kRequestSizeMax) return;
    client->answer = answer_of("431 Request Header Fields Too Large", "Too long.\n");
    return write(client);
  }
  const auto [method, target, protocol] = request_line(client->request);
  if (!protocol.starts_with("HTTP/1.")) {
    client->answer = answer_of("400 Bad Request", "This is HTTP/1.1: GET /metrics\n");
  } else if (method != "GET") {
    client->answer = answer_of("405 Method Not Allowed", "GET /metrics\n", "Allow: GET\r\n");
  } else if (target.substr(0, target.find('?')) != "/metrics") {
    client->answer = answer_of("404 Not Found", "GET /metrics\n");
  } else {
    client->answer = answer_of("200 OK", text());
  }
  write(client);
}

void MetricsServer::write(Clients::iterator client) {
  const std::string& answer = client->answer;
  const ssize_t size = send(client->socket.get(), answer.data() + client->sent, answer.size() - client->sent,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0 && errno != EAGAIN && errno != EINTR) return end(client);
  if (size > 0) client->sent += static_cast<std::size_t>(size);
  client->write_again = loop_.now() + kRetryNs;
  if (client->sent == answer.size()) end(client);
}

TimeNs MetricsServer::on_turn(TimeNs now) {
  TimeNs next = kNever;
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto current = client++;
    if (current->deadline <= now) {
      end(current);
      continue;
    }
    next = std::min(next, current->deadline);
    if (current->answer.empty()) continue;
    if (current->write_again > now) {
      next = std::min(next, current->write_again);
    } else {
      next = std::min(next, now + kRetryNs);
      write(current);
    }
  }
  if (listen_again_ <= now && !watch_listener()) listen_again_ = now + kListenAgainNs;
  return std::min(next, listen_again_);
}

const std::string& MetricsServer::text() {
  const TimeNs now = loop_.now();
  if (now - kTextAgeNs >= text_made_) {
    text_ = make_text_();
    text_made_ = now;
  }
  return text_;
}

}  // namespace ucm::daemon
