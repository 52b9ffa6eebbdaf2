#include "cli/detach.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace ucm::cli {
namespace {

constexpr int kFirstOtherDescriptor = 3;
// Where close_range() is missing (Linux before 5.9), as many are closed one by one.
constexpr int kDescriptorsWithoutCloseRange = 65536;

tl::unexpected<Error> system_failure(const char* what) {
  const int code = errno;
  return fail(code, std::string(what) + ": " + std::generic_category().message(code));
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 512> buffer;
  while (true) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

// "ok" is success; anything else is why it failed.
[[noreturn]] void wait_for_report(int pipe) {
  const std::string report = read_all(pipe);
  if (report == "ok") std::exit(EXIT_SUCCESS);
  std::fprintf(stderr, "ucmd: %s\n", report.empty() ? "ended during its start" : report.c_str());
  std::exit(EXIT_FAILURE);
}

Result<void> leave_terminal() {
  if (setsid() < 0) return system_failure("setsid");
  if (chdir("/") != 0) return system_failure("chdir /");
  const ipc::FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return system_failure("/dev/null");
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.get(), standard);
  return {};
}

}  // namespace

void StartReport::succeeded() {
  if (pipe_ && write(pipe_.get(), "ok", 2) != 2) return pipe_.reset();
  pipe_.reset();
}

void StartReport::failed(const std::string& why) {
  if (!pipe_) {
    std::fprintf(stderr, "ucmd: %s\n", why.c_str());
    return;
  }
  if (write(pipe_.get(), why.data(), why.size()) < 0) return pipe_.reset();
  pipe_.reset();
}

void close_inherited_descriptors() {
  if (syscall(SYS_close_range, kFirstOtherDescriptor, ~0U, 0) == 0) return;
  for (int fd = kFirstOtherDescriptor; fd < kDescriptorsWithoutCloseRange; ++fd) close(fd);
}

Result<StartReport> detach() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_failure("pipe");
  ipc::FileDescriptor reader(ends[0]), writer(ends[1]);
  const pid_t child = fork();
  if (child < 0) return system_failure("fork");
  if (child > 0) {
    writer.reset();
    wait_for_report(reader.get());
  }
  StartReport report(std::move(writer));
  if (const auto left = leave_terminal(); !left) {
    report.failed(left.error().message);
    std::exit(EXIT_FAILURE);
  }
  return report;
}

}  // namespace ucm::cli
