// How the measuring process leads the two that it measures: each says where it has come, and waits to be sent on.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "net/owned_fd.h"

namespace ucm::bench {

enum class Stage : std::uint8_t {
  kReady,   // prepared
  kHeld,    // the connections that are only held are up
  kUp,      // the measured ones, too
  kDown,    // all are down again
  kFailed,  // with a message, instead of any other
};

// One end of it each. A peer that is gone reads as kFailed.
class Gate {
 public:
  struct Pair;
  static Pair make();

  void say(Stage stage, const std::string& message = "");
  // Waits for the other's next word. ETIMEDOUT: none within `timeout_ms` (-1: for ever).
  Result<Stage> hear(int timeout_ms = -1);
  // Becomes readable when there is a word.
  int fd() const { return socket_.get(); }

 private:
  explicit Gate(int socket) : socket_(socket) {}
  net::OwnedFd socket_;
};

struct Gate::Pair {
  Gate leader;
  Gate led;
};

}  // namespace ucm::bench
