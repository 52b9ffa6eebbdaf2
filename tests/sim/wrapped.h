// A node round another one, for a node with a difference.
#pragma once

#include <memory>
#include <utility>

#include "sim/node.h"

namespace ucm::sim {

// Passes everything on. What a fault changes is overridden.
class Wrapped : public Node {
 public:
  explicit Wrapped(std::unique_ptr<Node> node) : node_(std::move(node)) {}
  Handle listen(std::uint16_t port, std::uint32_t backlog, std::uint64_t user) override {
    return node_->listen(port, backlog, user);
  }
  void close_listener(TimeNs now, Handle listener) override { node_->close_listener(now, listener); }
  Handle connect(TimeNs now, const ConnectRequest& request) override { return node_->connect(now, request); }
  void request_taken(TimeNs now, Handle connection) override { node_->request_taken(now, connection); }
  void set_user(Handle connection, std::uint64_t user) override { node_->set_user(connection, user); }
  bool accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) override {
    return node_->accept(now, connection, qpn, note);
  }
  bool reject(TimeNs now, Handle connection) override { return node_->reject(now, connection); }
  bool establish(TimeNs now, Handle connection) override { return node_->establish(now, connection); }
  void disconnect(TimeNs now, Handle connection) override { node_->disconnect(now, connection); }
  void destroy(TimeNs now, Handle connection) override { node_->destroy(now, connection); }
  std::optional<QpNumbers> qp(Handle connection) const override { return node_->qp(connection); }
  void on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) override { node_->on_packet(now, from, mad); }
  void on_deadline(TimeNs now) override { node_->on_deadline(now); }
  TimeNs next_deadline() const override { return node_->next_deadline(); }
  bool poll_packet(Packet& packet) override { return node_->poll_packet(packet); }
  bool poll_event(Event& event) override { return node_->poll_event(event); }
  Usage usage() const override { return node_->usage(); }
  bool answers_every_dreq() const override { return node_->answers_every_dreq(); }

 private:
  std::unique_ptr<Node> node_;
};

}  // namespace ucm::sim
