// What the engine has learnt of each peer host, from answers to its own messages alone: how soon it answers, whether it
// is a UCM, and how many requests it can take at a time. Hints: a forgotten peer is met as a new one.
#pragma once

#include <cstdint>
#include <optional>

#include "base/hash.h"
#include "base/random.h"
#include "base/time.h"
#include "cm/exchange.h"
#include "cm/limits.h"
#include "cm/path.h"
#include "cm/slab.h"
#include "cm/slab_list.h"
#include "cm/slot_table.h"
#include "wire/mad.h"

namespace ucm::cm {

// UCM peers know each other by this value in bytes 18 and 19 of every MAD header. They are reserved (IBTA 13.4.3):
// Linux never reads them, never copies them into an answer and sends 0, so that a stock peer acts as if they were 0. A
// peer that claims to be a UCM and is none gets repetitions a few milliseconds sooner, nothing else.
inline constexpr std::uint16_t kUcmMark = 0x5543;
inline bool from_ucm(const wire::MadHeader& header) { return header.reserved == kUcmMark; }

// When a message that nobody has answered is sent again. The time after which one gives up is not here: it follows
// from the numbers in the messages (cm-protocol F.3), as a user of librdmacm expects.
struct Recovery {
  static constexpr TimeNs kMillisecond = kNanosecondsPerMillisecond;

  // The first wait at a peer that has answered before is its smoothed answer time plus four times the deviation
  // (RFC 6298), within these limits. A Linux host answers a repeated request with MRA, which costs it more.
  TimeNs shortest = 4 * kMillisecond;
  TimeNs shortest_foreign = 16 * kMillisecond;
  TimeNs longest = 64 * kMillisecond;
  TimeNs longest_foreign = 256 * kMillisecond;
  // RTU and DREP, which nobody answers, are sent a second time to a Linux host after so long: it would ask for one that
  // was lost after seconds only, and drops one that it has. 0: they are not.
  TimeNs last_words_foreign = 16 * kMillisecond;
  // At a peer never heard of.
  TimeNs first_contact = 32 * kMillisecond;
  // A Linux host takes a repeated SIDR_REQ that it has answered for a new one, and its program has to answer again: one
  // that meets the answer on the way does harm. So the first wait at a peer never heard of is longer than any way, and
  // at one that is no UCM that of Linux.
  TimeNs first_sidr_contact = 256 * kMillisecond;
  // Every further wait is twice the one before, up to this.
  TimeNs longest_backoff = 16'384 * kMillisecond;
  // Every wait is spread by up to this much up or down, so that messages lost together do not come back together.
  std::uint8_t jitter_percent = 25;
};

class Peers {
 public:
  using Index = std::uint32_t;
  static constexpr Index kNone = UINT32_MAX;

  Peers(const RandomKey& key, const Recovery& recovery) : key_(key), recovery_(recovery) {}

  // kNone for a peer that is not known. `hint` is where it was found the last time, or kNone.
  Index find(const Path& path, Index hint = kNone);
  // Forgets another one when there are too many (limits.h); kNone when all of them are in use.
  Index find_or_add(const Path& path);

  // How long to wait before the first repetition; `peer` may be kNone.
  TimeNs first_wait(Index peer) const;
  // The same for SIDR_REQ; `foreign` at a peer that is no UCM.
  TimeNs first_sidr_wait(Index peer, TimeNs foreign) const;
  // The peer has answered a message `elapsed` after it was first sent; `ambiguous`: it was sent again meanwhile, and
  // nothing tells whether the first one was lost or the peer takes its time. A UCM's sample counts all the same: too
  // long is better than too short where many ask at once.
  struct Answer {
    TimeNs elapsed = 0;
    bool ambiguous = false;
    bool is_ucm = false;
  };
  void answered(Index peer, const Answer& answer);
  // Smoothed; nullopt where it has not been measured, or the peer is not at `hint` any more.
  std::optional<TimeNs> answer_time(const Path& path, Index hint) const;

  // Requests to one peer that are neither answered nor repeated yet are limited by a window, which grows with every
  // answer and shrinks when answers stay out (as TCP's: RFC 5681), and those to all peers by kRequestsInFlightMax. The
  // others are held back, and peers take turns. What a repetition is due for counts as lost and is not in flight any
  // more: one service that does not answer keeps nobody from another one at the same host.
  using Exchanges = Slab<Exchange>;
  void hold(Exchanges& exchanges, Exchanges::Index request);
  bool may_send_request() const { return !turns_.empty() && in_flight_ < kRequestsInFlightMax; }
  // The next request to be sent, which is in flight now; only when one may be sent.
  Exchanges::Index next_request(Exchanges& exchanges);
  void request_answered(Exchange& request);
  void request_lost(TimeNs now, Exchange& request);
  // The peer asks for patience with a request: if that counted as lost, it was not, and a window that is too small for
  // a slow program makes it slower.
  void request_found(const Exchange& request);
  // The request is over, whether held or in flight or neither.
  void forget_request(Exchanges& exchanges, Exchanges::Index request, bool held);

  std::size_t requests_in_flight() const { return in_flight_; }
  void add_to(StateHash& hash, const Exchanges& exchanges) const;

 private:
  friend struct EngineAccess;  // tests/explore

  struct Peer {
    Host host{};
    bool heard = false;
    bool measured = false;
    bool is_ucm = false;
    bool slow_start = true;
    std::uint32_t answer_us = 0;     // smoothed
    std::uint32_t deviation_us = 0;  // smoothed
    std::uint32_t window = kFirstWindow;
    std::uint32_t window_credit = 0;  // answers since the window last grew
    std::uint32_t in_flight = 0;
    TimeNs shrunk_at = -kNever;
    std::uint32_t window_before = 0;  // it last shrank
    SlabList<Exchange> held{};
    bool in_turn = false;  // in turns_
    Link link{};
  };
  static constexpr std::uint32_t kFirstWindow = 32;

  void leave_flight(Exchange& request);
  void take_turns(Index peer);

  RandomKey key_;
  Recovery recovery_;
  Slab<Peer> peers_;
  SlotTable by_host_;
  SlabList<Peer> turns_;  // peers with requests held back whose window is open
  std::size_t in_flight_ = 0;
  Index next_forgotten_ = 0;
  Index found_last_ = kNone;
};

}  // namespace ucm::cm
