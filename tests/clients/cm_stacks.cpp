// cm_stacks LOCAL [no-fork]: the libraries' own threads in programs that have set something for theirs, or have
// thread-local variables, which lie in every stack. LOCAL is an address of this host.
#include <pthread.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr std::size_t kThreadLocalBytes = 4 << 20;
thread_local char thread_local_bytes[kThreadLocalBytes];

constexpr std::size_t kHardlyAny = kThreadLocalBytes + (64 << 10);
constexpr std::size_t kMoreThanThereIs = std::size_t{1} << 45;

void set_default_stack(std::size_t bytes) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  require(pthread_attr_setstacksize(&attributes, bytes) == 0, "pthread_attr_setstacksize");
  require(pthread_setattr_default_np(&attributes) == 0, "pthread_setattr_default_np");
  pthread_attr_destroy(&attributes);
}

// The program's signals are for the program's threads.
void signals_blocked() {
  constexpr unsigned long long kWanted = 1ULL << (SIGALRM - 1) | 1ULL << (SIGTERM - 1) | 1ULL << (SIGCHLD - 1);
  int seen = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string name;
    unsigned long long blocked = 0;
    for (std::string word; status >> word;) {
      if (word == "Name:") status >> name;
      if (word == "SigBlk:") status >> std::hex >> blocked;
    }
    if (!name.starts_with("ucm-")) continue;
    ++seen;
    require((blocked & kWanted) == kWanted, name + " takes signals");
  }
  require(seen >= 2, "the libraries' threads are not to be seen");
}

void with_default_stack(std::size_t bytes, const std::string& local) {
  set_default_stack(bytes);
  whole_life(local);
  signals_blocked();
}

}  // namespace

int main(int argc, char** argv) {
  require(argc >= 2, "cm_stacks LOCAL [no-fork]");
  const std::string local = argv[1];
  thread_local_bytes[0] = 1;
  if (argc == 2) {
    // In a process of its own, before the libraries have started a thread.
    expect_success(in_child([&] {
                     with_default_stack(kHardlyAny, local);
                     std::exit(0);
                   }),
                   "a default stack of hardly any size");
  }
  with_default_stack(kMoreThanThereIs, local);
  std::puts("all as it should be");
  return 0;
}
