#include "cli/doctor.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/limits.h"
#include "net/socket_address.h"

namespace ucm::cli {
namespace {

// A program with 1,000 event channels and completion channels; ucmd itself raises its limit to the hard one.
constexpr std::uint64_t kDescriptorsWanted = 4096;

Finding judge_daemon(const MachineFacts& facts) {
  constexpr const char* kSubject = "daemon";
  if (!facts.daemon) return {Verdict::kGood, kSubject, "none runs; `ucm run` starts one when it is needed", ""};
  if (!*facts.daemon) {
    const Error& error = facts.daemon->error();
    const bool other_version = error.code == EPROTONOSUPPORT;
    return {Verdict::kProblem, kSubject, error.message,
            other_version ? "stop it with the `ucm stop` of its own version, then start a program again"
                          : "run the program as that user or as root, or name another ucmd in UCM_SOCKET"};
  }
  if (facts.daemon_version != UCM_VERSION) {
    return {Verdict::kNote, kSubject, **facts.daemon,
            std::string("it is of another version than this ucm, ") + UCM_VERSION + ": `ucm stop` it when it is idle"};
  }
  return {Verdict::kGood, kSubject, **facts.daemon, ""};
}

Finding judge_port(const MachineFacts& facts) {
  constexpr const char* kSubject = "UDP port 4791";
  if (facts.daemon && *facts.daemon) return {Verdict::kGood, kSubject, "served by the daemon", ""};
  if (!facts.port_error) return {Verdict::kGood, kSubject, "free", ""};
  return {
      Verdict::kProblem, kSubject, facts.port_error->message,
      "end who holds it (the kernel's rdma_rxe: `rdma link delete NAME`), or run in a network namespace of its own"};
}

std::string describe(const host::Device& device) {
  std::string text = "ucm_" + device.interface_name + ", MTU " + std::to_string(device.mtu);
  for (const host::DeviceAddress& own : device.addresses) text += ", " + net::to_string(own.address);
  return text;
}

void judge_devices(const MachineFacts& facts, std::vector<Finding>& findings) {
  constexpr const char* kSubject = "device";
  if (!facts.devices) {
    findings.push_back({Verdict::kProblem, kSubject, facts.devices.error().message, "ucmd needs rtnetlink"});
    return;
  }
  if (facts.devices->empty()) {
    findings.push_back({Verdict::kProblem, kSubject, "no network interface is up", "ip link set lo up"});
  }
  for (const host::Device& device : *facts.devices) {
    if (device.addresses.empty()) {
      findings.push_back({Verdict::kNote, kSubject, describe(device) + ": no address", "give it one to use it"});
    } else if (host::path_mtu_of(device.mtu) == 0) {
      findings.push_back({Verdict::kProblem, kSubject, describe(device), "RoCE needs an MTU of 352 at least"});
    } else if (!device.running) {
      findings.push_back({Verdict::kNote, kSubject, describe(device) + ": no carrier", "connect it to use it"});
    } else {
      findings.push_back({Verdict::kGood, kSubject, describe(device), ""});
    }
  }
}

Finding judge_identification(const MachineFacts& facts) {
  constexpr const char* kSubject = "IPv4 identification";
  if (!facts.ipv4_identification) {
    return {Verdict::kNote, kSubject, "cannot be seen: " + facts.ipv4_identification.error().message,
            "should Linux peers not answer, look at what leaves: it has to be 0"};
  }
  if (*facts.ipv4_identification != 0) {
    return {Verdict::kProblem, kSubject, "this kernel numbers its datagrams, so that every ICRC is wrong for others",
            "peers with UCM work; Linux peers drop what comes from here"};
  }
  return {Verdict::kGood, kSubject, "0, as the ICRC needs it", ""};
}

Finding judge_buffer(const MachineFacts& facts) {
  constexpr const char* kSubject = "receive buffer";
  const std::string found = std::to_string(facts.receive_buffer_max / 1024) + " KiB (net.core.rmem_max)";
  const auto wanted = static_cast<std::uint64_t>(net::kReceiveBufferBytes);
  if (facts.receive_buffer_max >= wanted) return {Verdict::kGood, kSubject, found, ""};
  if (facts.may_exceed_buffer_max) return {Verdict::kGood, kSubject, found + ", which a ucmd of root exceeds", ""};
  return {Verdict::kNote, kSubject, found,
          "big transfers are quicker with more: sysctl -w net.core.rmem_max=" + std::to_string(wanted)};
}

Finding judge_descriptors(const MachineFacts& facts) {
  constexpr const char* kSubject = "descriptors";
  const std::string found = std::to_string(facts.descriptors_max) + " per process (ulimit -n)";
  if (facts.descriptors_max >= kDescriptorsWanted) return {Verdict::kGood, kSubject, found, ""};
  return {Verdict::kNote, kSubject, found,
          "every event channel takes one: `ulimit -n " + std::to_string(kDescriptorsWanted) +
              "` before programs with many"};
}

Finding judge_system_devices(const MachineFacts& facts) {
  constexpr const char* kSubject = "the kernel's RDMA devices";
  const SystemDevices& devices = facts.system_devices;
  if (devices.usable.empty() && devices.refused.empty()) {
    return {Verdict::kGood, kSubject, "none, and none is needed", ""};
  }
  if (const auto usable = judge_usable(devices); !usable) {
    return {Verdict::kNote, kSubject, usable.error().message,
            "`ucm run` gives programs software devices until they can be opened"};
  }
  return {Verdict::kGood, kSubject, joined(devices.usable) + ": what `ucm run` gives programs, unless --device soft",
          ""};
}

Finding judge_libraries(const MachineFacts& facts) {
  constexpr const char* kSubject = "libraries";
  if (facts.libraries) return {Verdict::kGood, kSubject, *facts.libraries, ""};
  return {Verdict::kProblem, kSubject, facts.libraries.error().message, "install UCM whole: make install"};
}

const char* name_of(Verdict verdict) {
  constexpr std::array kNames{"good", "note", "problem"};
  return kNames[static_cast<std::size_t>(verdict)];
}

}  // namespace

std::vector<Finding> judge(const MachineFacts& facts) {
  std::vector<Finding> findings{judge_libraries(facts), judge_daemon(facts), judge_port(facts)};
  judge_devices(facts, findings);
  findings.push_back(judge_identification(facts));
  findings.push_back(judge_buffer(facts));
  findings.push_back(judge_descriptors(facts));
  findings.push_back(judge_system_devices(facts));
  return findings;
}

bool has_problem(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& f) { return f.verdict == Verdict::kProblem; });
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string verdict = name_of(finding.verdict);
    verdict.resize(9, ' ');
    text += verdict + finding.subject + ": " + finding.found + "\n";
    if (!finding.advice.empty()) text += "         -> " + finding.advice + "\n";
  }
  return text;
}

nlohmann::json findings_json(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"verdict", name_of(finding.verdict)},
                    {"subject", finding.subject},
                    {"found", finding.found},
                    {"advice", finding.advice}});
  }
  return list;
}

}  // namespace ucm::cli
