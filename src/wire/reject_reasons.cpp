#include "wire/reject_reasons.h"

namespace ucm::wire {

std::string_view text_of(RejReason reason) {
  switch (reason) {
    case RejReason::kNoQp:
      return "no QP";
    case RejReason::kNoResources:
      return "no resources";
    case RejReason::kTimeout:
      return "timeout";
    case RejReason::kUnsupported:
      return "unsupported request";
    case RejReason::kInvalidCommId:
      return "invalid comm ID";
    case RejReason::kInvalidServiceId:
      return "nobody listens";
    case RejReason::kStaleConnection:
      return "stale connection";
    case RejReason::kInvalidGid:
      return "invalid GID";
    case RejReason::kInvalidAlternateGid:
      return "invalid alternate GID";
    case RejReason::kInvalidMtu:
      return "invalid MTU";
    case RejReason::kConsumerDefined:
      return "by the application, or not for us";
    default:
      return "other";
  }
}

std::string_view text_of(SidrStatus status) {
  switch (status) {
    case SidrStatus::kSuccess:
      return "success";
    case SidrStatus::kUnsupportedServiceId:
      return "nobody listens";
    case SidrStatus::kRejected:
      return "by the application, or not for us";
    case SidrStatus::kNoQp:
      return "no QP";
    case SidrStatus::kRedirect:
      return "redirected";
    case SidrStatus::kUnsupportedVersion:
      return "unsupported version";
  }
  return "other";
}

}  // namespace ucm::wire
