// What runs come to: figures as JSON, which the tables and the page are made of, here or later or elsewhere.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "bench/runner.h"

namespace ucm::bench {

// A document without cases, which says on what machine they were measured. Its "ways" are texts by name.
nlohmann::json new_document();
// Of several runs of one workload: rates and costs are their medians, durations are put together.
nlohmann::json figures_of(const Workload& workload, std::span<const Run> runs);

// Puts the cases of `from` behind those of `into`; both are documents. EINVAL: `from` is none.
Result<void> append(nlohmann::json& into, const nlohmann::json& from);

// For a terminal.
std::string tables_of(const nlohmann::json& document);

}  // namespace ucm::bench
