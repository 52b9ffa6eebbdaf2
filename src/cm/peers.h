// What the engine has learnt of each peer host, from answers to its own messages alone: how soon it answers, and
// whether it is a UCM. Hints: a forgotten peer is met as a new one.
#pragma once

#include <cstdint>

#include "base/hash.h"
#include "base/random.h"
#include "base/time.h"
#include "cm/path.h"
#include "cm/slab.h"
#include "cm/slot_table.h"

namespace ucm::cm {

// UCM peers know each other by this value in bytes 18 and 19 of every MAD header. They are reserved (IBTA 13.4.3):
// Linux never reads them, never copies them into an answer and sends 0, so that a stock peer acts as if they were 0. A
// peer that claims to be a UCM and is none gets repetitions a few milliseconds sooner, nothing else.
inline constexpr std::uint16_t kUcmMark = 0x5543;

// When a message that nobody has answered is sent again. The time after which one gives up is not here: it follows
// from the numbers in the messages (cm-protocol F.3), as a user of librdmacm expects.
struct Recovery {
  static constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;

  // The first wait at a peer that has answered before is its smoothed answer time plus four times the deviation
  // (RFC 6298), within these limits. A Linux host answers a repeated request with MRA, which costs it more.
  TimeNs shortest = 4 * kMillisecond;
  TimeNs shortest_foreign = 16 * kMillisecond;
  TimeNs longest = 64 * kMillisecond;
  // At a peer never heard of.
  TimeNs first_contact = 32 * kMillisecond;
  // Every further wait is twice the one before, up to this.
  TimeNs longest_backoff = 16'384 * kMillisecond;
  // Every wait is spread by up to this much up or down, so that messages lost together do not come back together.
  std::uint8_t jitter_percent = 25;
};

class Peers {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = Slab<int>::kNone;

  Peers(const RandomKey& key, const Recovery& recovery) : key_(key), recovery_(recovery) {}

  // kNone for a peer that is not known.
  Index find(const Path& path) const;
  // Forgets another one when there are too many (limits.h).
  Index find_or_add(const Path& path);

  // How long to wait before the first repetition; `peer` may be kNone.
  TimeNs first_wait(Index peer) const;
  // The peer has answered a message `elapsed` after it was first sent. That a repetition may have been needed makes the
  // sample too long, never too short.
  void answered(Index peer, TimeNs elapsed, bool is_ucm);

  std::size_t size() const { return peers_.in_use(); }

 private:
  struct Peer {
    wire::IpAddress address{};
    std::uint32_t ifindex = 0;  // of a link-local address; else 0
    bool measured = false;
    bool is_ucm = false;
    std::uint32_t answer_us = 0;     // smoothed
    std::uint32_t deviation_us = 0;  // smoothed
  };
  std::uint32_t hash_of(const wire::IpAddress& address, std::uint32_t ifindex) const;

  RandomKey key_;
  Recovery recovery_;
  Slab<Peer> peers_;
  SlotTable by_address_;
  Index next_forgotten_ = 0;
};

}  // namespace ucm::cm
