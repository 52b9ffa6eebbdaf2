// Records of a recording as a person reads them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "recording/records.h"

namespace ucm::cli {

// Every field with its value, in order: {"path.local", "10.0.0.1"}.
std::vector<std::pair<std::string, std::string>> fields_of(const recording::Record& record);
// "connect path.local=10.0.0.1 …", without the fields that are 0 or empty, and without the time.
std::string record_text(const recording::Record& record);

}  // namespace ucm::cli
