// rsockets do not exist in UCM yet: the symbols do, for programs that import them without using them, and say ENOSYS.
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/uio.h>

#include <cerrno>

namespace {

int not_there() {
  errno = ENOSYS;
  return -1;
}

}  // namespace

extern "C" {

int rsocket(int, int, int) { return not_there(); }
int rbind(int, const sockaddr*, socklen_t) { return not_there(); }
int rlisten(int, int) { return not_there(); }
int raccept(int, sockaddr*, socklen_t*) { return not_there(); }
int rconnect(int, const sockaddr*, socklen_t) { return not_there(); }
int rshutdown(int, int) { return not_there(); }
int rclose(int) { return not_there(); }

ssize_t rrecv(int, void*, size_t, int) { return not_there(); }
ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) { return not_there(); }
ssize_t rrecvmsg(int, msghdr*, int) { return not_there(); }
ssize_t rsend(int, const void*, size_t, int) { return not_there(); }
ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) { return not_there(); }
ssize_t rsendmsg(int, const msghdr*, int) { return not_there(); }
ssize_t rread(int, void*, size_t) { return not_there(); }
ssize_t rreadv(int, const iovec*, int) { return not_there(); }
ssize_t rwrite(int, const void*, size_t) { return not_there(); }
ssize_t rwritev(int, const iovec*, int) { return not_there(); }

// Programs call this on plain descriptors as well, such as the one of an event channel.
int rpoll(pollfd* fds, nfds_t nfds, int timeout) { return poll(fds, nfds, timeout); }
int rselect(int, fd_set*, fd_set*, fd_set*, timeval*) { return not_there(); }

int rgetpeername(int, sockaddr*, socklen_t*) { return not_there(); }
int rgetsockname(int, sockaddr*, socklen_t*) { return not_there(); }
int rsetsockopt(int, int, int, const void*, socklen_t) { return not_there(); }
int rgetsockopt(int, int, int, void*, socklen_t*) { return not_there(); }
int rfcntl(int, int, ...) { return not_there(); }

off_t riomap(int, void*, size_t, int, int, off_t) { return not_there(); }
int riounmap(int, void*, size_t) { return not_there(); }
size_t riowrite(int, const void*, size_t, off_t, int) { return static_cast<size_t>(not_there()); }

}  // extern "C"
