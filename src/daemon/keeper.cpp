#include "daemon/keeper.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"
#include "ipc/control_messages.h"
#include "ipc/control_socket.h"

namespace ucm::daemon {
namespace {

using ipc::HolderCall;
using ipc::HolderMessage;

std::uint64_t key_of(Keeper::What what, std::uint32_t id) { return static_cast<std::uint64_t>(what) << 32 | id; }

std::vector<char*> pointers_to(std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The holder is a grandchild: nobody has to wait for it.
Result<void> spawn(std::vector<std::string> arguments, int pair) {
  const std::vector<char*> argv = pointers_to(arguments);
  const pid_t child = fork();
  if (child < 0) return fail(errno, "fork: " + std::generic_category().message(errno));
  if (child == 0) {
    const pid_t holder = fork();
    if (holder != 0) _exit(holder < 0 ? EAGAIN : 0);
    // dup2() of a descriptor onto itself would leave it close-on-exec.
    if (pair == ipc::kHolderDescriptor) pair = dup(pair);
    dup2(pair, ipc::kHolderDescriptor);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(EAGAIN, "no process for " + arguments[0]);
}

}  // namespace

Result<Keeper> Keeper::start(const std::string& holder, const std::vector<std::string>& successor) {
  if (access(holder.c_str(), X_OK) != 0) {
    return fail(errno, holder + ": " + std::generic_category().message(errno) + ": is UCM installed completely?");
  }
  auto pair = ipc::connected_pair();
  if (!pair) return tl::unexpected(pair.error());
  std::vector<std::string> arguments{holder};
  arguments.insert(arguments.end(), successor.begin(), successor.end());
  if (auto spawned = spawn(std::move(arguments), pair->second.get()); !spawned) return tl::unexpected(spawned.error());
  return Keeper(std::move(pair->first));
}

Result<Keeper> Keeper::resume(ipc::FileDescriptor pair) {
  Keeper keeper(std::move(pair));
  keeper.resumed_ = true;
  while (true) {
    HolderMessage message;
    auto received = ipc::receive_message(
        keeper.pair_.get(), {reinterpret_cast<std::uint8_t*>(&message), sizeof message}, ipc::ReceiveMode::kWait);
    if (!received) return tl::unexpected(received.error());
    if (received->size == 0) return fail(ENOTCONN, "ucm-holder has ended");
    if (received->size != sizeof message || message.magic != ipc::kHolderMagic) {
      return fail(EPROTO, "ucm-holder speaks another protocol");
    }
    if (message.call == HolderCall::kAll) return keeper;
    Descriptors& descriptors = keeper.kept_[message.key];
    std::size_t next = 0;
    for (std::size_t place = 0; place < descriptors.size(); ++place) {
      if ((message.present & 1u << place) == 0) continue;
      if (next == received->descriptor_count) return fail(EPROTO, "ucm-holder's message lacks a descriptor");
      descriptors[place] = std::move(received->descriptors[next++]);
    }
  }
}

// A holder that has died is noticed by whoever watches descriptor().
void Keeper::send(HolderMessage message, std::span<const int> descriptors) {
  static_cast<void>(
      ipc::send_message(pair_.get(), ipc::bytes_of(message), descriptors, ipc::SendMode::kWait).has_value());
}

void Keeper::hold(What what, std::uint32_t id, std::span<const int> descriptors) {
  UCM_CHECK(descriptors.size() <= ipc::kDescriptorsMax);
  HolderMessage message{.call = HolderCall::kHold, .key = key_of(what, id)};
  std::vector<int> present;
  for (std::size_t place = 0; place < descriptors.size(); ++place) {
    if (descriptors[place] < 0) continue;
    message.present |= 1u << place;
    present.push_back(descriptors[place]);
  }
  send(message, present);
}

void Keeper::release(What what, std::uint32_t id) { send({.call = HolderCall::kRelease, .key = key_of(what, id)}); }

Keeper::Descriptors Keeper::take(What what, std::uint32_t id) {
  const auto kept = kept_.extract(key_of(what, id));
  return kept ? std::move(kept.mapped()) : Descriptors{};
}

void Keeper::release_rest() {
  for (const auto& [key, descriptors] : kept_) send({.call = HolderCall::kRelease, .key = key});
  kept_.clear();
}

Result<node::Journal> Keeper::new_journal() {
  auto journal = node::Journal::create();
  if (journal) hold(What::kJournal, 0, std::array{journal->descriptor()});
  return journal;
}

Result<node::Journal> Keeper::kept_journal() { return node::Journal::open(std::move(take(What::kJournal)[0])); }

void Keeper::end() {
  send({.call = HolderCall::kEnd});
  std::array<std::uint8_t, sizeof(HolderMessage)> nothing{};
  static_cast<void>(ipc::receive_message(pair_.get(), nothing, ipc::ReceiveMode::kWait).has_value());
}

}  // namespace ucm::daemon
