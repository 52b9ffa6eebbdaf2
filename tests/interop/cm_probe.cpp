// cm_probe: a CM peer that does nothing of itself. Standard input has a line of JSON for each packet to send
// (cm_message_json.h; "source" and "destination" are its addresses); standard output has one for each packet received.
// It lies when told to.
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <iostream>

#include "interop/cm_message_json.h"
#include "net/udp_port.h"

namespace {

using nlohmann::json;
using namespace ucm;

void send(net::UdpPort& port, const json& description) {
  wire::DatagramInfo info;
  info.source = test::parse_address(description.at("source").get<std::string>());
  info.destination = test::parse_address(description.at("destination").get<std::string>());
  info.source_port = port.source_port();
  const std::vector<std::uint8_t> bytes = test::build_packet(info, description);
  const net::Datagram datagram{info, bytes};
  port.send({&datagram, 1});
  if (port.send_counters().refused != 0) {
    throw std::invalid_argument("not sent: " + std::string(std::strerror(port.send_counters().last_error)));
  }
}

void tell(const net::Datagram& datagram) {
  std::cout << test::describe_packet(datagram.info, datagram.payload).dump() << std::endl;
}

// The complete lines of what has been read; the rest stays in `input`.
void send_lines(net::UdpPort& port, std::string& input) {
  for (std::size_t end; (end = input.find('\n')) != std::string::npos; input.erase(0, end + 1)) {
    send(port, json::parse(input.substr(0, end)));
  }
}

void run(net::UdpPort& port) {
  std::vector<pollfd> waiting{{STDIN_FILENO, POLLIN, 0}};
  for (const int fd : port.wait_fds()) waiting.push_back({fd, POLLIN, 0});
  std::string input;
  for (;;) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    port.receive(tell, 64);
    if (waiting.front().revents == 0) continue;
    char buffer[65536];
    const ssize_t size = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (size <= 0) return;
    input.append(buffer, static_cast<std::size_t>(size));
    send_lines(port, input);
  }
}

}  // namespace

int main() {
  const auto port = net::UdpPort::open();
  if (!port) {
    std::cerr << "cm_probe: " << port.error().message << '\n';
    return 1;
  }
  std::cout << "{\"message\": \"ready\"}" << std::endl;
  try {
    run(**port);
  } catch (const std::exception& error) {
    std::cerr << "cm_probe: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
