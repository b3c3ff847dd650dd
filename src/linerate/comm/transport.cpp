#include "linerate/comm/transport.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::comm {

void Transport::begin(const Purpose& purpose) {
  purpose_ = purpose;
  comparing_ = purpose.compares;
  life_->begin(purpose, Clock::now());
}

void Transport::compared(bool alike) {
  comparing_ = false;
  life_->compared(alike);
}

std::uint64_t Transport::tag(int peer) const {
  return comparing_ ? tag_.comparison(life_->begun(peer))
                    : tag_.payload(life_->history(peer), purpose_.print->call);
}

void Transport::throw_failure(const std::string& reason) const {
  throw CommError(fmt::format("rank {}: {}: {}", rank(), purpose_.print->describe(), reason));
}

}  // namespace linerate::comm
