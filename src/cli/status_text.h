// What `ucm status` and `ucm devices` print, from the node's JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ucm::cli {

std::string status_text(const nlohmann::json& status);
std::string devices_text(const nlohmann::json& status);

}  // namespace ucm::cli
