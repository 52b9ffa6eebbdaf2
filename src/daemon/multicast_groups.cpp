#include "daemon/multicast_groups.h"

namespace ucm::daemon {

bool MulticastGroups::join(Member member, const wire::MulticastGroup& group) {
  const bool first = !groups_.contains(group);
  ++groups_[group][member];
  return first;
}

bool MulticastGroups::leave(Member member, const wire::MulticastGroup& group) {
  const auto members = groups_.find(group);
  if (members == groups_.end()) return false;
  const auto joins = members->second.find(member);
  if (joins == members->second.end()) return false;
  if (--joins->second == 0) members->second.erase(joins);
  if (!members->second.empty()) return false;
  groups_.erase(members);
  return true;
}

std::vector<wire::MulticastGroup> MulticastGroups::leave_all(Member member) {
  std::vector<wire::MulticastGroup> left;
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    const bool was_in = entry->second.erase(member) != 0;
    if (was_in && entry->second.empty()) {
      left.push_back(entry->first);
      entry = groups_.erase(entry);
    } else {
      ++entry;
    }
  }
  return left;
}

std::uint32_t MulticastGroups::joins_of(Member member) const {
  std::uint32_t count = 0;
  for (const auto& [group, members] : groups_) {
    const auto joins = members.find(member);
    if (joins != members.end()) count += joins->second;
  }
  return count;
}

std::vector<MulticastGroups::Member> MulticastGroups::members_of(const wire::MulticastGroup& group) const {
  std::vector<Member> result;
  if (const auto members = groups_.find(group); members != groups_.end()) {
    for (const auto& [member, joins] : members->second) result.push_back(member);
  }
  return result;
}

}  // namespace ucm::daemon
