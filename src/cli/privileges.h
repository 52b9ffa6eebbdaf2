// Root's ucmd gives up what it does not need once it serves.
#pragma once

#include "base/result.h"

namespace ucm::cli {

// No capabilities, neither now nor after an exec, and no new privileges. Without privileges it only says the latter.
Result<void> drop_privileges();

}  // namespace ucm::cli
