// What `ucm stats` shows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "node/flight_recorder.h"

namespace ucm::daemon {

// Counts per type of message, connections per state, and how long they stay in each.
nlohmann::json recorder_stats(const node::FlightRecorder& recorder);

// The statistics of a node (Server::stats()) in the text format of Prometheus.
std::string prometheus_text(const nlohmann::json& stats);

}  // namespace ucm::daemon
