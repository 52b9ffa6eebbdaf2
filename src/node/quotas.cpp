#include "node/quotas.h"

#include <algorithm>

#include "base/check.h"

namespace ucm::node {

bool Quotas::Account::idle(TimeNs now) const {
  return next_connect <= now && std::ranges::all_of(held, [](std::uint32_t count) { return count == 0; });
}

bool Quotas::take(SessionId session, std::uint32_t user, Resource resource, std::uint32_t count) {
  const auto index = static_cast<std::size_t>(resource);
  std::uint32_t& own = sessions_[session].held[index];
  std::uint32_t& all = users_[user].held[index];
  const std::uint64_t own_most = limits_.program.most[index];
  const std::uint64_t all_most = limits_.user.most[index];
  if (std::uint64_t{own} + count > own_most || std::uint64_t{all} + count > all_most) {
    ++refused_[index];
    return false;
  }
  own += count;
  all += count;
  return true;
}

void Quotas::hold(SessionId session, std::uint32_t user, Resource resource, std::uint32_t count) {
  const auto index = static_cast<std::size_t>(resource);
  sessions_[session].held[index] += count;
  users_[user].held[index] += count;
}

std::uint32_t Quotas::room(SessionId session, std::uint32_t user, Resource resource) const {
  const auto index = static_cast<std::size_t>(resource);
  const auto left = [&](const auto& accounts, auto whose, std::uint32_t most) {
    const auto account = accounts.find(whose);
    const std::uint32_t held = account != accounts.end() ? account->second.held[index] : 0;
    return most - std::min(held, most);
  };
  return std::min(left(sessions_, session, limits_.program.most[index]), left(users_, user, limits_.user.most[index]));
}

void Quotas::give_back(SessionId session, std::uint32_t user, Resource resource, std::uint32_t count) {
  const auto index = static_cast<std::size_t>(resource);
  std::uint32_t& own = sessions_.at(session).held[index];
  std::uint32_t& all = users_.at(user).held[index];
  UCM_CHECK(own >= count && all >= count);
  own -= count;
  all -= count;
}

bool Quotas::in_time(const Account& account, TimeNs now, std::uint32_t per_s) {
  return per_s != 0 && account.next_connect - now < kNanosecondsPerSecond;
}

bool Quotas::may_connect(TimeNs now, SessionId session, std::uint32_t user) {
  Account& own = sessions_[session];
  Account& all = users_[user];
  const std::uint32_t own_rate = limits_.program.connects_per_s;
  const std::uint32_t all_rate = limits_.user.connects_per_s;
  if (!in_time(own, now, own_rate) || !in_time(all, now, all_rate)) {
    ++too_fast_;
    return false;
  }
  own.next_connect = std::max(own.next_connect, now) + kNanosecondsPerSecond / own_rate;
  all.next_connect = std::max(all.next_connect, now) + kNanosecondsPerSecond / all_rate;
  return true;
}

void Quotas::forget(TimeNs now, SessionId session, std::uint32_t user) {
  sessions_.erase(session);
  // One who was too fast a moment ago is remembered; there are no more of those than users.
  if (const auto it = users_.find(user); it != users_.end() && it->second.idle(now)) users_.erase(it);
}

}  // namespace ucm::node
