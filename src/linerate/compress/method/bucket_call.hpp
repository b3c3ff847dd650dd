// Helps codecs that are written over a back end with a call that has all tensors of a bucket.
#pragma once

#include <vector>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// A member of each codec of a call, by tensor.
template <class Member, class Of, class Call>
std::vector<Member*> kept_of(const Call& tensors, Member Of::*member) {
  std::vector<Member*> all;
  for (auto* const codec : tensors.codecs) all.push_back(&(static_cast<Of&>(*codec).*member));
  return all;
}

}  // namespace linerate::compress
