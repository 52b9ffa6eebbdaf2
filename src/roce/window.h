// How much a QP may have in flight, and how long an answer takes. Pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"
#include "roce/limits.h"

namespace ucm::roce {

// A congestion window in packets: grows by one per window acknowledged, halves on loss.
class Window {
 public:
  void start(std::uint32_t mtu) {
    packets_ = std::clamp(kWindowBytesInitial / mtu, kWindowPacketsMin, kWindowPacketsInitial);
    credit_ = 0;
  }
  std::uint32_t packets() const { return packets_; }

  void on_acknowledged(std::uint32_t count) {
    credit_ += count;
    while (credit_ >= packets_ && packets_ < kWindowPacketsMax) {
      credit_ -= packets_;
      ++packets_;
    }
    credit_ = std::min(credit_, packets_);
  }
  void on_loss() {
    packets_ = std::max(packets_ / 2, kWindowPacketsMin);
    credit_ = 0;
  }

 private:
  std::uint32_t packets_ = kWindowPacketsMin;
  std::uint32_t credit_ = 0;
};

// Smoothed round trip as in RFC 6298.
class RoundTrip {
 public:
  void on_sample(TimeNs sample) {
    if (smoothed_ == 0) {
      smoothed_ = sample;
      deviation_ = sample / 2;
      return;
    }
    const TimeNs error = sample > smoothed_ ? sample - smoothed_ : smoothed_ - sample;
    deviation_ += (error - deviation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
  }
  // When the `attempt`-th probe in a row (from 0) is due after the last sign of life.
  TimeNs probe_delay(std::uint32_t attempt) const {
    const TimeNs base =
        smoothed_ == 0 ? kProbeDelayInitial : std::clamp(smoothed_ + 4 * deviation_, kProbeDelayMin, kProbeDelayMax);
    return std::min(base << std::min(attempt, kProbesMax), kProbeDelayMax);
  }

 private:
  TimeNs smoothed_ = 0;
  TimeNs deviation_ = 0;
};

}  // namespace ucm::roce
