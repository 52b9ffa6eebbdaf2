// What one program and one user may hold, and how fast they may ask for connections, so that nobody takes all that the
// node has. Pure: the time comes in as an argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "base/time.h"
#include "node/node.h"

namespace ucm::node {

class Quotas {
 public:
  explicit Quotas(const Limits& limits = {}) : limits_(limits) {}
  // What is held already stays held.
  void set_limits(const Limits& limits) { limits_ = limits; }

  // False, and nothing is taken: the program's share or its user's is used up.
  [[nodiscard]] bool take(SessionId session, std::uint32_t user, Resource resource, std::uint32_t count = 1);
  // What another node has let it take: it is held, whatever the limits are now.
  void hold(SessionId session, std::uint32_t user, Resource resource, std::uint32_t count = 1);
  // How many take() would still give.
  std::uint32_t room(SessionId session, std::uint32_t user, Resource resource) const;
  // Of what has been taken.
  void give_back(SessionId session, std::uint32_t user, Resource resource, std::uint32_t count = 1);
  // False: the program or its user asks for connections faster than they may. Either may be ahead by one second's
  // worth.
  [[nodiscard]] bool may_connect(TimeNs now, SessionId session, std::uint32_t user);
  // The program has ended, and has given everything back.
  void forget(TimeNs now, SessionId session, std::uint32_t user);

  std::uint64_t refused(Resource resource) const { return refused_[static_cast<std::size_t>(resource)]; }
  std::uint64_t refused_too_fast() const { return too_fast_; }

 private:
  struct Account {
    std::array<std::uint32_t, kResourceCount> held{};
    TimeNs next_connect = 0;  // when the next connection would come if all came at the allowed rate
    bool idle(TimeNs now) const;
  };
  static bool in_time(const Account& account, TimeNs now, std::uint32_t per_s);

  Limits limits_;
  std::unordered_map<SessionId, Account> sessions_;
  std::unordered_map<std::uint32_t, Account> users_;
  std::array<std::uint64_t, kResourceCount> refused_{};
  std::uint64_t too_fast_ = 0;
};

}  // namespace ucm::node
