#include "ipc/helper_thread.h"

#include <signal.h>

#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace ucm::ipc {
namespace {

// Several times what the deepest call takes, with the frames of a sanitizer; little, for programs that lock all their
// memory.
constexpr std::size_t kStackBytes = 1 << 20;
// The program's thread-local variables take their room in each stack: more is tried where they leave none.
constexpr std::size_t kStackBytesMax = 256 << 20;

using Body = std::function<void()>;

// The calling thread's mask while a thread is born that shall not take the program's signals.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    // A fault of the thread's own has to reach the program's handler.
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

void* run(void* body) {
  const std::unique_ptr<Body> owned(static_cast<Body*>(body));
  (*owned)();
  return nullptr;
}

int create(pthread_t& thread, std::size_t stack_bytes, Body& body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  const int error = pthread_create(&thread, &attributes, run, &body);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace

Result<pthread_t> start_helper_thread(const char* name, std::function<void()> body) {
  auto owned = std::make_unique<Body>(std::move(body));
  pthread_t thread{};
  int error = EINVAL;
  {
    const SignalsBlocked no_signals;
    for (std::size_t bytes = kStackBytes; error == EINVAL && bytes <= kStackBytesMax; bytes *= 4) {
      error = create(thread, bytes, *owned);
    }
  }
  if (error != 0) {
    return fail(error, std::string("cannot start the thread ") + name + ": " + std::generic_category().message(error));
  }
  static_cast<void>(owned.release());  // the thread's own
  pthread_setname_np(thread, name);
  return thread;
}

}  // namespace ucm::ipc
