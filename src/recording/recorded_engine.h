// A CM engine whose inputs and outputs can be written down as they come, so that another engine can be given the same.
// Its functions are cm::Engine's, which are hidden: what is called through a reference to cm::Engine is not recorded.
// Without a recording it costs a test for each call.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cm/engine.h"
#include "recording/records.h"

namespace ucm::recording {

class RecordedEngine : public cm::Engine {
 public:
  // Gets every record as it is in a file; false: it takes no more of them, and the recording is over.
  using Sink = std::function<bool(Bytes record)>;

  using Engine::Engine;

  // Begins a recording, in place of one that goes on. The engine is a new one from now on, without observer and with
  // counters of 0; so there must be nothing in it that somebody needs.
  void record(TimeNs now, const cm::Config& config, Sink sink);

  // As cm::Engine's.
  Result<cm::ListenerId> listen(const cm::ListenParams& params);
  void close_listener(TimeNs now, cm::ListenerId id);
  Result<cm::ConnectionId> connect(TimeNs now, const cm::ConnectParams& params);
  void request_taken(TimeNs now, cm::ConnectionId id);
  void set_user(cm::ConnectionId id, std::uint64_t user);
  Result<void> accept(TimeNs now, cm::ConnectionId id, const cm::AcceptParams& params);
  Result<void> reject(TimeNs now, cm::ConnectionId id, const cm::RejectParams& params);
  Result<void> establish(TimeNs now, cm::ConnectionId id);
  Result<void> notify_established(TimeNs now, cm::ConnectionId id);
  void disconnect(TimeNs now, cm::ConnectionId id);
  void destroy(TimeNs now, cm::ConnectionId id);
  Result<cm::SidrId> sidr_connect(TimeNs now, const cm::SidrConnectParams& params);
  void sidr_request_taken(cm::SidrId id);
  void sidr_set_user(cm::SidrId id, std::uint64_t user);
  Result<void> sidr_accept(TimeNs now, cm::SidrId id, const cm::SidrAcceptParams& params);
  Result<void> sidr_reject(TimeNs now, cm::SidrId id, Bytes private_data);
  void sidr_destroy(TimeNs now, cm::SidrId id);
  void on_packet(TimeNs now, const cm::Path& path, Bytes mad);
  const cm::Packet* poll_packet();
  std::optional<cm::Event> poll_event();
  std::optional<cm::SidrEvent> poll_sidr_event();
  void on_deadline(TimeNs now);

 private:
  void write(const Record& record);

  Sink sink_;
  std::uint8_t drained_ = 0;          // since the last input: kPackets, …
  std::vector<std::uint8_t> buffer_;  // of a record
};

}  // namespace ucm::recording
