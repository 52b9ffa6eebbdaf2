// What is explored: some of it with every `make test`, all of it with `make explore`.
#pragma once

#include <vector>

#include "explore/explorer.h"

namespace ucm::explore {

// Some ten seconds together.
std::vector<Scenario> quick_scenarios();
// Minutes each, and up to 6.5 GB of memory.
std::vector<Scenario> long_scenarios();

}  // namespace ucm::explore
