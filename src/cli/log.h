// ucmd's log: levels, as text or as JSON, to standard error or a file.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/settings.h"
#include "daemon/server.h"

namespace ucm::cli {

// From now on the log is as the settings say; a file is opened anew. Lines for systemd's journal carry their priority
// and no time. A failure leaves the log as it was.
Result<void> set_up_log(const Settings& settings);
void write_log(daemon::LogLevel level, const std::string& text);

}  // namespace ucm::cli
