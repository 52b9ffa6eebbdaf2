#include "bench/process_probe.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace ucm::bench {
namespace {

namespace fs = std::filesystem;

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    threads.push_back(std::atoi(entry.path().filename().c_str()));
  }
  return threads;
}

std::optional<std::uint64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  std::uint64_t number = 0;
  if (!(in >> number)) return std::nullopt;
  return number;
}

net::OwnedFd count_system_calls(pid_t thread) {
  const auto tracepoint = number_in("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
  if (!tracepoint) return {};
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = PERF_TYPE_TRACEPOINT;
  attributes.config = *tracepoint;
  attributes.inherit = 1;
  return net::OwnedFd(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC)));
}

std::optional<TimeNs> cpu_time(pid_t pid) {
  clockid_t clock = 0;
  timespec time{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return std::nullopt;
  return time.tv_sec * kNanosecondsPerSecond + time.tv_nsec;
}

std::optional<std::uint64_t> memory_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("Pss:")) return std::strtoull(line.c_str() + std::strlen("Pss:"), nullptr, 10) * 1024;
  }
  return std::nullopt;
}

}  // namespace

ProcessProbe::ProcessProbe(std::string name, pid_t pid) : name_(std::move(name)), pid_(pid) {
  for (const pid_t thread : threads_of(pid)) {
    net::OwnedFd counter = count_system_calls(thread);
    if (counter.valid()) counters_.push_back(std::move(counter));
  }
}

Usage ProcessProbe::usage() const {
  Usage usage{.cpu = cpu_time(pid_), .system_calls = {}, .memory_bytes = memory_of(pid_)};
  for (const net::OwnedFd& counter : counters_) {
    std::uint64_t calls = 0;
    if (read(counter.get(), &calls, sizeof(calls)) != sizeof(calls)) continue;
    usage.system_calls = usage.system_calls.value_or(0) + calls;
  }
  return usage;
}

}  // namespace ucm::bench
