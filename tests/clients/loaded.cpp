// loaded LOCAL: a program that is not linked with librdmacm, but loads and unloads it again and again, as plug-ins do.
// LOCAL is an address of this host.
#include <dirent.h>
#include <dlfcn.h>

#include "cm_client.h"

using namespace ucm::test;

namespace {

constexpr int kRounds = 30;

template <class Function>
Function* find(void* library, const char* name) {
  void* const found = dlsym(library, name);
  require(found != nullptr, std::string("dlsym ") + name);
  return reinterpret_cast<Function*>(found);
}

void use(void* library, const std::string& local) {
  auto* const channel = find<decltype(rdma_create_event_channel)>(library, "rdma_create_event_channel")();
  require(channel != nullptr, "rdma_create_event_channel");
  rdma_cm_id* id = nullptr;
  succeed(find<decltype(rdma_create_id)>(library, "rdma_create_id")(channel, &id, nullptr, RDMA_PS_TCP),
          "rdma_create_id");
  Address to(local, 7999);
  succeed(find<decltype(rdma_resolve_addr)>(library, "rdma_resolve_addr")(id, nullptr, to.get(), 2000),
          "rdma_resolve_addr");
  rdma_cm_event* event = nullptr;
  succeed(find<decltype(rdma_get_cm_event)>(library, "rdma_get_cm_event")(channel, &event), "rdma_get_cm_event");
  require(event->event == RDMA_CM_EVENT_ADDR_RESOLVED && id->verbs != nullptr, "the address is not resolved");
  find<decltype(rdma_ack_cm_event)>(library, "rdma_ack_cm_event")(event);
  find<decltype(rdma_destroy_id)>(library, "rdma_destroy_id")(id);
  find<decltype(rdma_destroy_event_channel)>(library, "rdma_destroy_event_channel")(channel);
}

int entries_of(const char* directory) {
  DIR* const open = opendir(directory);
  require(open != nullptr, directory);
  int count = 0;
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  require(argc == 2, "loaded LOCAL");
  int descriptors = 0;
  int threads = 0;
  for (int round = 0; round < kRounds; ++round) {
    void* const library = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) die(dlerror());
    use(library, argv[1]);
    dlclose(library);
    const int descriptors_now = entries_of("/proc/self/fd");
    const int threads_now = entries_of("/proc/self/task");
    if (round != 0) {
      require(descriptors_now == descriptors, std::to_string(descriptors_now - descriptors) + " descriptors are left");
      require(threads_now == threads, std::to_string(threads_now - threads) + " threads are left");
    }
    descriptors = descriptors_now;
    threads = threads_now;
  }
  std::puts("all as it should be");
  return 0;
}
