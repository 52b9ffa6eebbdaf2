// UCM's engine as a node of the simulation.
#pragma once

#include "recording/recorded_engine.h"
#include "sim/node.h"

namespace ucm::sim {

class UcmNode final : public Node {
 public:
  UcmNode(const wire::IpAddress& address, std::uint64_t guid, const cm::Config& config)
      : address_(address), guid_(guid), config_(config), engine_(config) {}

  // Before anything else.
  void record(recording::RecordedEngine::Sink sink) { engine_.record(0, config_, std::move(sink)); }

  cm::Engine& engine() { return engine_; }

  Handle listen(std::uint16_t port, std::uint32_t backlog, std::uint64_t user) override;
  void close_listener(TimeNs now, Handle listener) override;
  Handle connect(TimeNs now, const ConnectRequest& request) override;
  void request_taken(TimeNs now, Handle connection) override;
  void set_user(Handle connection, std::uint64_t user) override;
  bool accept(TimeNs now, Handle connection, std::uint32_t qpn, std::uint64_t note) override;
  bool reject(TimeNs now, Handle connection) override;
  bool establish(TimeNs now, Handle connection) override;
  void disconnect(TimeNs now, Handle connection) override;
  void destroy(TimeNs now, Handle connection) override;
  std::optional<QpNumbers> qp(Handle connection) const override;
  void on_packet(TimeNs now, const wire::IpAddress& from, Bytes mad) override;
  void on_deadline(TimeNs now) override { engine_.on_deadline(now); }
  TimeNs next_deadline() const override { return engine_.next_deadline(); }
  bool poll_packet(Packet& packet) override;
  bool poll_event(Event& event) override;
  Usage usage() const override;
  bool answers_every_dreq() const override { return true; }

 private:
  wire::IpAddress address_;
  std::uint64_t guid_;
  cm::Config config_;
  recording::RecordedEngine engine_;
};

}  // namespace ucm::sim
