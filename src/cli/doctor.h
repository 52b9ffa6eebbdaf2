// `ucm doctor`: is this machine fit for UCM, and what is to be done where it is not?
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/system_devices.h"
#include "host/device.h"

namespace ucm::cli {

// What was looked at. An error is what a person would meet.
struct MachineFacts {
  // The ucmd that programs of this user would get; no value: none runs.
  std::optional<Result<std::string>> daemon;
  std::string daemon_version;
  std::optional<Error> port_error;  // why UDP 4791 cannot be had; not asked while a ucmd has it
  Result<std::vector<host::Device>> devices;
  Result<std::uint16_t> ipv4_identification = 0;  // of what this kernel sends
  std::uint64_t receive_buffer_max = 0;           // net.core.rmem_max, bytes
  bool may_exceed_buffer_max = false;             // CAP_NET_ADMIN
  std::uint64_t descriptors_max = 0;              // soft RLIMIT_NOFILE
  SystemDevices system_devices;                   // RDMA devices that the kernel has
  Result<std::string> libraries;                  // the folder of UCM's libraries
};

MachineFacts gather_facts();

enum class Verdict : std::uint8_t { kGood, kNote, kProblem };

struct Finding {
  Verdict verdict{};
  std::string subject;
  std::string found;
  std::string advice;  // empty when there is nothing to do
};

std::vector<Finding> judge(const MachineFacts& facts);
bool has_problem(const std::vector<Finding>& findings);

std::string findings_text(const std::vector<Finding>& findings);
nlohmann::json findings_json(const std::vector<Finding>& findings);

}  // namespace ucm::cli
