// What the server needs of a node; the tests put their own behind it.
#pragma once

#include <functional>
#include <vector>

#include "host/device.h"
#include "ipc/cm_api.h"
#include "node/node.h"
#include "wire/address.h"

namespace ucm::daemon {

class NodeAccess {
 public:
  virtual ~NodeAccess() = default;

  virtual ipc::CmReply execute(node::SessionId session, node::LinkId link, const ipc::CmCommand& command) = 0;
  virtual void set_limits(const node::Limits& limits) = 0;
  virtual void allow_low_ports(node::SessionId session) = 0;
  virtual void remove_link(node::LinkId link) = 0;
  virtual void remove_session(node::SessionId session) = 0;
  virtual Result<void> join_group(const wire::MulticastGroup& group) = 0;
  virtual void leave_group(const wire::MulticastGroup& group) = 0;

  // What has changed, and whatever else was staged in the journal, is kept from now on.
  virtual void commit() = 0;

  virtual std::vector<node::Node::ListenerStatus> listeners() const = 0;
  virtual std::vector<node::Node::ConnectionStatus> connections() const = 0;
  virtual std::vector<node::Node::Listing> list(node::Node::ListPosition& position, std::size_t entries_max) const = 0;
  // nullptr: the node records nothing.
  virtual node::FlightRecorder* recorder() const = 0;
  virtual Result<void> record_engine(std::function<bool(Bytes record)> sink) = 0;
  virtual std::vector<node::Node::Count> counters() const = 0;
  virtual std::vector<node::Node::Count> held() const = 0;
  virtual std::vector<host::Device> devices() const = 0;
  // Is it an address of this host? Asked for every received packet.
  virtual bool is_local(const wire::IpAddress& address) const = 0;
};

}  // namespace ucm::daemon
