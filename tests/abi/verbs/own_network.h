// A network namespace of this process's own, so that tests may bind UDP 4791 whatever else runs on the machine.
#pragma once

namespace ucm::testing {

// Moves the process (it has one thread) into a new user and network namespace whose `lo` is up. False where the system
// does not allow that.
bool enter_own_network();

}  // namespace ucm::testing
