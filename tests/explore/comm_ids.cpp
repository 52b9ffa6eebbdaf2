#include "explore/comm_ids.h"

#include "base/check.h"
#include "explore/engine_access.h"

namespace ucm::explore {

CommIds::CommIds(const std::array<cm::Config, kNodes>& configs) {
  for (unsigned node = 0; node < kNodes; ++node) {
    for (unsigned number = 0; number < kCommIdsPerNode; ++number) {
      cm::Engine engine(configs[node]);
      cm::EngineAccess::set_next_comm_id(engine, number);
      const auto id = engine.connect(0, {});
      UCM_CHECK(id);
      ids_[node][number] = cm::EngineAccess::facts(engine, *id).local_comm_id;
    }
  }
}

CommIdSet CommIds::set_of(std::uint32_t comm_id) const {
  CommIdSet set{};
  for (unsigned node = 0; node < kNodes; ++node) {
    for (unsigned number = 0; number < kCommIdsPerNode; ++number) {
      if (ids_[node][number] == comm_id) set[node] = static_cast<std::uint16_t>(1u << number);
    }
  }
  return set;
}

std::string CommIds::name(std::uint32_t comm_id) const {
  for (unsigned node = 0; node < kNodes; ++node) {
    for (unsigned number = 0; number < kCommIdsPerNode; ++number) {
      if (ids_[node][number] == comm_id) return std::string(1, static_cast<char>('a' + node)) + std::to_string(number);
    }
  }
  return "?";
}

}  // namespace ucm::explore
