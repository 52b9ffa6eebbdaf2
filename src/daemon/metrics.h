// Figures for Prometheus over HTTP: the answer to `GET /metrics`, and nothing else. In the loop's thread; a client that
// is slow or talks nonsense costs a little memory for a little while, and holds up nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "ipc/file_descriptor.h"
#include "net/event_loop.h"
#include "wire/address.h"

namespace ucm::daemon {

struct MetricsAddress {
  wire::IpAddress address{};
  std::uint16_t port = 0;
};
// "9477" (on 127.0.0.1), "10.0.0.1:9477", "[::1]:9477". EINVAL for anything else.
Result<MetricsAddress> parse_metrics_address(const std::string& text);

class MetricsServer {
 public:
  static constexpr std::size_t kClientsMax = 8;                     // of more than that the oldest goes
  static constexpr std::size_t kRequestSizeMax = 4096;              // with all header lines
  static constexpr TimeNs kPatienceNs = 2 * kNanosecondsPerSecond;  // with a client, from its first moment to its last

  // `loop` outlives the server and does not run after its end. `text` makes the figures; not more often than ten times
  // a second.
  MetricsServer(net::EventLoop& loop, std::function<std::string()> text);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // The error names the address.
  Result<void> listen(const MetricsAddress& address);
  // Serves a connected stream socket.
  void adopt(ipc::FileDescriptor socket);

 private:
  struct Client {
    ipc::FileDescriptor socket;
    TimeNs deadline;
    std::string request{};
    std::string answer{};  // once the request is complete
    std::size_t sent = 0;  // of the answer
    TimeNs write_again = 0;
  };
  using Clients = std::list<Client>;

  Result<void> watch_listener();
  void accept_clients();
  void read(Clients::iterator client);
  void write(Clients::iterator client);
  void end(Clients::iterator client);
  TimeNs on_turn(TimeNs now);
  const std::string& text();

  net::EventLoop& loop_;
  std::function<std::string()> make_text_;
  std::string text_;
  TimeNs text_made_ = -kNever;
  ipc::FileDescriptor listener_;
  TimeNs listen_again_ = kNever;  // while there are no descriptors
  Clients clients_;               // the oldest first
};

}  // namespace ucm::daemon
