// Which programs have joined which multicast groups, and how often. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "wire/address.h"

namespace ucm::daemon {

class MulticastGroups {
 public:
  using Member = std::uint32_t;  // a session

  // True when `member` is the group's first.
  bool join(Member member, const wire::MulticastGroup& group);
  // True when nobody is left in the group. Nothing where `member` is not in it.
  bool leave(Member member, const wire::MulticastGroup& group);
  // Returns the groups in which nobody is left.
  std::vector<wire::MulticastGroup> leave_all(Member member);

  // Joins of `member` that it has not left.
  std::uint32_t joins_of(Member member) const;
  // By value: what is done for one of them may end another one.
  std::vector<Member> members_of(const wire::MulticastGroup& group) const;

 private:
  std::map<wire::MulticastGroup, std::map<Member, std::uint32_t>> groups_;  // how often each has joined
};

}  // namespace ucm::daemon
