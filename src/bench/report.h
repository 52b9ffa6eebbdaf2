// One self-contained page about a document of figures.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ucm::bench {

std::string html_report(const nlohmann::json& document);

}  // namespace ucm::bench
