// The requests that listeners have and that no application has read yet: who may wait, and who comes next. Requests of
// one host come in order; hosts take turns, each with as many requests as make up one client (kRequestsPerTurn), so
// that a client whose first queue was served gets the rest of them before the next client's first one.
#pragma once

#include <array>
#include <cstdint>

#include "base/hash.h"
#include "base/random.h"
#include "cm/limits.h"
#include "cm/path.h"
#include "cm/slab.h"
#include "cm/slab_list.h"
#include "cm/slot_table.h"
#include "wire/ip_cm.h"
#include "wire/mad.h"

namespace ucm::cm {

// What one side tells the other about its QP, in REQ or REP.
struct ConnectionParams {
  std::uint32_t qpn = 0;
  bool srq = false;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  bool flow_control = false;
  std::uint8_t retry_count = 0;      // > 7 is sent as 7
  std::uint8_t rnr_retry_count = 0;  // > 7 is sent as 7
  std::uint32_t vendor_id = 0;       // ECE; 0 = none
  std::uint32_t ece_options = 0;
};

class Requests {
 public:
  struct Request {
    // What the application is told.
    ConnectionParams params{};
    wire::IpCmHeader addresses{};
    std::array<std::uint8_t, kConnectPrivateDataMax> private_data{};
    // Whose it is, and where it stands.
    std::uint32_t slot = 0;  // of its connection
    std::uint32_t listener = 0;
    std::uint32_t source = 0;  // while it waits
    bool delivered = false;
    Link link{};
  };
  // The requests of one host to one listener that wait.
  struct Source {
    Host host{};
    std::uint32_t listener = 0;
    std::uint32_t served = 0;  // in this turn
    SlabList<Request> waiting{};
    Link link{};
  };
  // What a listener has.
  struct Queue {
    SlabList<Source> sources{};     // in the order of their turns
    SlabList<Request> delivered{};  // the application has the event, but has not read it
    std::uint32_t waiting = 0;
    std::size_t size() const { return waiting + delivered.size(); }
  };
  using Index = Slab<Request>::Index;
  static constexpr Index kNone = Slab<Request>::kNone;

  explicit Requests(const RandomKey& key) : key_(key) {}

  // A host may fill half of what the others have left free, and can always have kRequestsPerSource. When half of the
  // backlog is taken by many hosts, a further UCM, which asks again within milliseconds, is not let in: few clients
  // that get all of their queues are better than many that get some and give up. `header` is the request's.
  bool has_room(const Queue& queue, std::uint32_t listener, std::uint32_t backlog, const Path& path,
                const wire::MadHeader& header) const;
  // Delivered at once when the application has little to read; what waits is there only while it has enough. The caller
  // fills in what the application is told.
  Index add(Queue& queue, std::uint32_t listener, std::uint32_t slot, const Path& path);
  // The next request for the application, which counts as delivered now; kNone when none waits or the application has
  // enough to read (kDeliveredMax).
  Index deliver_next(Queue& queue);
  // The application has read it, or it is over.
  void remove(Queue& queue, Index index);
  // Any request of the listener, those that wait first; kNone when there is none.
  Index any(const Queue& queue) const;

  // What a listener has, in its order.
  void add_to(StateHash& hash, const Queue& queue) const;

  Request& operator[](Index index) { return requests_[index]; }
  const Request& operator[](Index index) const { return requests_[index]; }
  std::size_t size() const { return requests_.in_use(); }

 private:
  friend struct EngineAccess;  // tests/explore

  Slab<Source>::Index find_source(std::uint32_t listener, const Host& host) const;
  void take_out(Queue& queue, Index index);

  RandomKey key_;
  std::size_t delivered_max_ = kDeliveredMax;
  Slab<Request> requests_;
  Slab<Source> sources_;
  SlotTable by_source_;
};

}  // namespace ucm::cm
