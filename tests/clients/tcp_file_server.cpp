// tcp_file_server ADDRESS PORT FILE: answers each HTTP request with the file, one connection after the other. A plain
// TCP program.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>

#include "cm_client.h"

using namespace ucm::test;

int main(int count, char** arguments) {
  require(count == 4, "usage: tcp_file_server ADDRESS PORT FILE");
  std::ifstream file(arguments[3], std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  const std::string answer =
      "HTTP/1.0 200 OK\r\nContent-Length: " + std::to_string(content.size()) + "\r\n\r\n" + content;

  const Address address(arguments[1], static_cast<std::uint16_t>(std::stoi(arguments[2])));
  const int listener = socket(address.get()->sa_family, SOCK_STREAM, 0);
  succeed(bind(listener, address.get(), address.size()), "bind");
  succeed(listen(listener, 8), "listen");
  for (;;) {
    const int peer = accept(listener, nullptr, nullptr);
    require(peer >= 0, "accept");
    std::string request;
    std::array<char, 1000> bytes;
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = read(peer, bytes.data(), bytes.size());
      if (got <= 0) break;
      request.append(bytes.data(), static_cast<std::size_t>(got));
    }
    std::size_t done = 0;
    while (done < answer.size()) {
      const ssize_t now = write(peer, answer.data() + done, answer.size() - done);
      if (now <= 0) break;
      done += static_cast<std::size_t>(now);
    }
    close(peer);
  }
}
