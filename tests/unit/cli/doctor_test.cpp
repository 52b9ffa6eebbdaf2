// What `ucm doctor` says of a machine.
#include "cli/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

namespace ucm::cli {
namespace {

MachineFacts good_machine() {
  MachineFacts facts;
  host::Device loopback;
  loopback.interface_name = "lo";
  loopback.mtu = 65536;
  loopback.addresses = {{wire::IpAddress::ipv4(0x7F000001), 8}};
  facts.devices = std::vector{loopback};
  facts.receive_buffer_max = 16 << 20;
  facts.descriptors_max = 65536;
  facts.libraries = "/usr/lib/ucm";
  return facts;
}

// The finding that is not good; there is exactly one.
Finding only_trouble(const MachineFacts& facts) {
  std::vector<Finding> findings = judge(facts);
  std::erase_if(findings, [](const Finding& finding) { return finding.verdict == Verdict::kGood; });
  EXPECT_EQ(findings.size(), 1u) << findings_text(findings);
  if (findings.empty()) return {};
  EXPECT_NE(findings[0].advice, "") << "trouble without advice";
  return findings[0];
}

TEST(Doctor, FindsNothingWrongWithAGoodMachine) {
  const std::vector<Finding> findings = judge(good_machine());
  EXPECT_FALSE(has_problem(findings));
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.subject;
    EXPECT_EQ(finding.advice, "");
  }
  EXPECT_NE(findings_text(findings).find("good     device: ucm_lo, MTU 65536, 127.0.0.1\n"), std::string::npos);
}

TEST(Doctor, ANoteIsNoProblem) {
  MachineFacts facts = good_machine();
  facts.system_devices.refused = {{EACCES, "the RDMA device rxe0 cannot be opened: no"}};
  const Finding note = only_trouble(facts);
  EXPECT_EQ(note.verdict, Verdict::kNote);
  EXPECT_EQ(note.found, "the RDMA device rxe0 cannot be opened: no");
  EXPECT_FALSE(has_problem(judge(facts)));
}

TEST(Doctor, TellsWhichRealDevicesProgramsGet) {
  MachineFacts facts = good_machine();
  facts.system_devices.usable = {"mlx5_0", "rxe0"};
  facts.system_devices.refused = {{EACCES, "the RDMA device rxe1 cannot be opened: no"}};
  const std::vector<Finding> findings = judge(facts);
  EXPECT_NE(findings_text(findings).find("mlx5_0, rxe0: what `ucm run` gives programs"), std::string::npos);
  facts.system_devices.no_rdma_cm = Error{ENOENT, "/dev/infiniband/rdma_cm: none"};
  EXPECT_NE(only_trouble(facts).found.find("rdma_ucm"), std::string::npos);
  facts.system_devices.no_verbs_library = Error{ENOENT, "the system has no libibverbs.so.1"};
  EXPECT_EQ(only_trouble(facts).found, "the system has no libibverbs.so.1");
}

TEST(Doctor, NamesWhoHoldsThePort) {
  MachineFacts facts = good_machine();
  facts.port_error = Error{EADDRINUSE, "it is held by the kernel (rdma_rxe)"};
  const Finding problem = only_trouble(facts);
  EXPECT_EQ(problem.verdict, Verdict::kProblem);
  EXPECT_EQ(problem.found, "it is held by the kernel (rdma_rxe)");
  EXPECT_NE(problem.advice.find("rdma link delete"), std::string::npos);
}

TEST(Doctor, ADaemonHasThePortRightly) {
  MachineFacts facts = good_machine();
  facts.daemon = "ucmd " UCM_VERSION;
  facts.daemon_version = UCM_VERSION;
  EXPECT_FALSE(has_problem(judge(facts)));
  facts.daemon_version = "0.0.1";
  EXPECT_EQ(only_trouble(facts).verdict, Verdict::kNote);
  facts.daemon = Result<std::string>(tl::unexpected(Error{EACCES, "it is another user's"}));
  EXPECT_EQ(only_trouble(facts).verdict, Verdict::kProblem);
}

TEST(Doctor, InterfacesThatCannotServe) {
  MachineFacts facts = good_machine();
  facts.devices->front().mtu = 300;
  EXPECT_EQ(only_trouble(facts).verdict, Verdict::kProblem);
  facts.devices->front() = {};
  facts.devices->front().interface_name = "eth0";
  facts.devices->front().mtu = 1500;
  EXPECT_EQ(only_trouble(facts).found, "ucm_eth0, MTU 1500: no address");
  facts.devices->front().addresses = {{wire::IpAddress::ipv4(0x0A000001), 8}};
  facts.devices->front().running = false;
  EXPECT_EQ(only_trouble(facts).found, "ucm_eth0, MTU 1500, 10.0.0.1: no carrier");
  facts.devices->clear();
  EXPECT_EQ(only_trouble(facts).verdict, Verdict::kProblem);
  facts.devices = tl::unexpected(Error{EPERM, "no rtnetlink"});
  EXPECT_EQ(only_trouble(facts).found, "no rtnetlink");
}

TEST(Doctor, WhatTheKernelAndItsLimitsMean) {
  MachineFacts facts = good_machine();
  facts.ipv4_identification = 7;
  EXPECT_EQ(only_trouble(facts).verdict, Verdict::kProblem);
  facts.ipv4_identification = tl::unexpected(Error{ENOTSUP, "no time stamps"});
  EXPECT_EQ(only_trouble(facts).verdict, Verdict::kNote);

  facts = good_machine();
  facts.receive_buffer_max = 212'992;
  EXPECT_EQ(only_trouble(facts).found, "208 KiB (net.core.rmem_max)");
  facts.may_exceed_buffer_max = true;
  facts.descriptors_max = 1024;
  EXPECT_EQ(only_trouble(facts).subject, "descriptors");

  facts = good_machine();
  facts.libraries = tl::unexpected(Error{ENOENT, "none there"});
  EXPECT_TRUE(has_problem(judge(facts)));
}

TEST(Doctor, TheJsonHasEveryFinding) {
  const std::vector<Finding> findings = judge(good_machine());
  const nlohmann::json json = findings_json(findings);
  ASSERT_EQ(json.size(), findings.size());
  EXPECT_EQ(json[0]["verdict"], "good");
  EXPECT_EQ(json[0]["subject"], "libraries");
}

}  // namespace
}  // namespace ucm::cli
