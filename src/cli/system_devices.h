// The RDMA devices of the system: what `ucm run --device` decides by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ucm::cli {

struct SystemDevices {
  std::vector<std::string> usable;
  std::vector<Error> refused;             // each names its device and says why it cannot be opened
  std::optional<Error> no_verbs_library;  // the system has no libibverbs
  std::optional<Error> no_rdma_cm;        // the kernel's connection manager cannot be opened
};

SystemDevices look_at_system_devices();

// Can programs use them? The error says what stands against it.
Result<void> judge_usable(const SystemDevices& devices);

std::string joined(const std::vector<std::string>& names);

}  // namespace ucm::cli
