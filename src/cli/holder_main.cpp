// ucm-holder: keeps what must not die with ucmd, and starts the next ucmd when one dies. ucmd starts it, with its end
// of a pair of sockets (ipc/holder_protocol.h) and, as arguments, the command line of a successor. It understands
// nothing of what it keeps, and does nothing but wait: there is little in it that could go wrong.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "ipc/control_messages.h"
#include "ipc/control_socket.h"
#include "ipc/holder_protocol.h"

namespace ucm::cli {
namespace {

using ipc::HolderCall;
using ipc::HolderMessage;

// A successor that ends by itself before it has served so long was no success. (Whoever kills it may do so as often as
// he likes.) After so many in a row, one starts from nothing, and if that does not help the holder gives up.
constexpr time_t kSuccessSeconds = 10;
constexpr int kFailuresMax = 3;

struct Kept {
  std::uint32_t present = 0;
  std::vector<ipc::FileDescriptor> descriptors;
};

class Holder {
 public:
  explicit Holder(std::vector<std::string> successor)
      : successor_(std::move(successor)), ucmd_(ipc::kHolderDescriptor) {}
  int run();

 private:
  enum class Served { kDied, kEnded };
  Served serve();
  void take(const HolderMessage& message, ipc::Received& received);
  bool start_successor();
  bool hand_over(int socket) const;
  void judge_end();
  [[noreturn]] void become_successor(ipc::FileDescriptor pair) const;

  std::vector<std::string> successor_;
  ipc::FileDescriptor ucmd_;
  pid_t child_ = 0;  // 0: the first ucmd, which is none
  time_t started_ = 0;
  int failures_ = 0;
  std::map<std::uint64_t, Kept> kept_;
};

time_t now_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void complain(const std::string& text) { std::fprintf(stderr, "ucm-holder: %s\n", text.c_str()); }

int Holder::run() {
  while (true) {
    if (serve() == Served::kEnded) return EXIT_SUCCESS;
    judge_end();
    if (failures_ >= 2 * kFailuresMax) {
      complain("ucmd ended " + std::to_string(failures_) + " times in a row: given up");
      return EXIT_FAILURE;
    }
    if (!start_successor()) return EXIT_FAILURE;
  }
}

Holder::Served Holder::serve() {
  while (true) {
    HolderMessage message;
    auto received = ipc::receive_message(ucmd_.get(), {reinterpret_cast<std::uint8_t*>(&message), sizeof message},
                                         ipc::ReceiveMode::kWait);
    if (!received || received->size == 0) return Served::kDied;
    if (received->size != sizeof message || message.magic != ipc::kHolderMagic) continue;
    if (message.call == HolderCall::kEnd) return Served::kEnded;
    take(message, *received);
  }
}

void Holder::take(const HolderMessage& message, ipc::Received& received) {
  if (message.call == HolderCall::kRelease) {
    kept_.erase(message.key);
  } else if (message.call == HolderCall::kHold) {
    Kept kept{.present = message.present, .descriptors = {}};
    for (std::size_t i = 0; i < received.descriptor_count; ++i) {
      kept.descriptors.push_back(std::move(received.descriptors[i]));
    }
    kept_[message.key] = std::move(kept);
  }
}

// The first ucmd is no child, and nothing is known of its end.
void Holder::judge_end() {
  ucmd_.reset();
  if (child_ == 0) return;
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) continue;
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  const bool success = killed || now_seconds() - started_ >= kSuccessSeconds;
  failures_ = success ? 0 : failures_ + 1;
}

bool Holder::start_successor() {
  auto pair = ipc::connected_pair();
  if (!pair) {
    complain(pair.error().message);
    return false;
  }
  started_ = now_seconds();
  child_ = fork();
  if (child_ < 0) {
    complain("fork: " + std::generic_category().message(errno));
    return false;
  }
  if (child_ == 0) become_successor(std::move(pair->second));
  pair->second.reset();
  ucmd_ = std::move(pair->first);
  // One that dies meanwhile is met in serve().
  hand_over(ucmd_.get());
  return true;
}

bool Holder::hand_over(int socket) const {
  for (const auto& [key, kept] : kept_) {
    std::vector<int> descriptors;
    for (const ipc::FileDescriptor& descriptor : kept.descriptors) descriptors.push_back(descriptor.get());
    const HolderMessage message{.call = HolderCall::kHold, .key = key, .present = kept.present};
    if (!ipc::send_message(socket, ipc::bytes_of(message), descriptors, ipc::SendMode::kWait)) return false;
  }
  const HolderMessage all{.call = HolderCall::kAll};
  return ipc::send_message(socket, ipc::bytes_of(all), {}, ipc::SendMode::kWait).has_value();
}

void Holder::become_successor(ipc::FileDescriptor pair) const {
  std::vector<std::string> arguments = successor_;
  arguments.insert(arguments.end(), {"--resume", failures_ >= kFailuresMax ? "nothing" : "everything"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Onto itself it would stay close-on-exec.
  int end = pair.release();
  if (end == ipc::kHolderDescriptor) end = dup(end);
  dup2(end, ipc::kHolderDescriptor);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_DFL);
  execv(argv[0], argv.data());
  complain(arguments[0] + ": " + std::generic_category().message(errno));
  _exit(127);
}

}  // namespace
}  // namespace ucm::cli

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "ucm-holder: started by ucmd, not by hand\n");
    return EXIT_FAILURE;
  }
  // It leaves when ucmd does, whoever else is asked to.
  setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  return ucm::cli::Holder({argv + 1, argv + argc}).run();
}
