// What of a ucmd survives it, from ucmd's side: descriptors and a journal that a tiny process of its own, ucm-holder,
// keeps. When ucmd dies, the holder starts the next one, which takes everything back and goes on.
//
// Not thread-safe. A holder that has died is a loss only when ucmd dies, too: everything here goes on without it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ipc/file_descriptor.h"
#include "ipc/holder_protocol.h"
#include "ipc/limits.h"
#include "node/journal.h"

namespace ucm::daemon {

class Keeper {
 public:
  enum class What : std::uint32_t {
    kJournal = 1,
    kListener,        // of the control socket
    kPort,            // UDP: IPv4, IPv6, and the two that are sent from
    kSession,         // control socket, table of peer QP numbers
    kDevicesChanged,  // of a session
    kDataLink,        // of a session: memory, tokens
    kCmLink,          // memory, doorbell, tokens of replies and of events
  };
  using Descriptors = std::array<ipc::FileDescriptor, ipc::kDescriptorsMax>;

  // Starts the program `holder`, which will start `successor` (a program and its arguments) whenever this process dies.
  static Result<Keeper> start(const std::string& holder, const std::vector<std::string>& successor);
  // In a successor: takes back everything over its end of the pair.
  static Result<Keeper> resume(ipc::FileDescriptor pair);

  // Readable once the holder has died.
  int descriptor() const { return pair_.get(); }
  bool resumed() const { return resumed_; }

  // Keeps copies of up to four descriptors, -1 for a place that has none, until release() or another hold().
  void hold(What what, std::uint32_t id, std::span<const int> descriptors);
  void release(What what, std::uint32_t id);
  // In a successor, once per key: what was kept, and still is.
  Descriptors take(What what, std::uint32_t id = 0);
  // Releases what nobody has taken: it was on its way in or out when the last ucmd died.
  void release_rest();

  // A new journal, or the one that was kept. Errors as Journal's.
  Result<node::Journal> new_journal();
  Result<node::Journal> kept_journal();

  // Ends the holder, and waits for that: afterwards nothing is kept.
  void end();

 private:
  explicit Keeper(ipc::FileDescriptor pair) : pair_(std::move(pair)) {}
  void send(ipc::HolderMessage message, std::span<const int> descriptors = {});

  ipc::FileDescriptor pair_;
  bool resumed_ = false;
  std::map<std::uint64_t, Descriptors> kept_;  // and not taken yet
};

}  // namespace ucm::daemon
