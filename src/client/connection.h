// The way to a node: finds its socket, checks whose it is, says hello, asks and hears the answers.
#pragma once

#include <array>
#include <span>
#include <string>

#include "base/result.h"
#include "ipc/control_messages.h"
#include "ipc/control_socket.h"
#include "ipc/file_descriptor.h"

namespace ucm::client {

struct Answer {
  ipc::ControlReply reply;
  std::array<ipc::FileDescriptor, ipc::kDescriptorsMax> descriptors;
  bool none_left = false;  // this process had no descriptors left for those of the answer
};

// Sends the request and waits for its answer; one thread at a time per socket. An answer with an error is an error.
// Fails with ENOTCONN when the node is gone, ETIMEDOUT when it does not answer in time, and EMFILE when this process
// has no descriptor left for what it was given; the node has closed a link by then.
Result<Answer> ask(int socket, const ipc::ControlRequest& request);

struct Connection {
  ipc::FileDescriptor socket;
  std::string socket_name;
  Answer hello;
};

// The node of UCM_SOCKET; without that, root's or this user's. ECONNREFUSED when there is none, EACCES when it is
// another user's, EPROTONOSUPPORT when it speaks another version.
Result<Connection> connect_node(ipc::Role role);
// The node behind one name only; errors as above.
Result<Connection> connect_node_at(const std::string& socket_name, ipc::Role role);

// Says hello on a socket that is connected already.
Result<Answer> say_hello(int socket, ipc::Role role);

}  // namespace ucm::client
