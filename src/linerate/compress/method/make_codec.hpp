// Makes the codecs that compressors choose (built_in.hpp) over a back end.
#pragma once

#include <memory>
#include <tuple>
#include <variant>

#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/method/entry_codecs.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/method/sign_codecs.hpp"

namespace linerate::compress {

template <class Ops, template <class> class Of, class... Settings>
std::unique_ptr<typename Ops::Codec> make_codec(const typename Ops::Making& making,
                                                const CodecWith<Of, Settings...>& choice) {
  return std::apply([&](const auto&... each) { return std::make_unique<Of<Ops>>(making, each...); },
                    choice.settings);
}
template <class Ops>
std::unique_ptr<typename Ops::Codec> make_codec(const typename Ops::Making& making,
                                                const CodecChoice& choice) {
  return std::visit([&](const auto& one) { return make_codec<Ops>(making, one); }, choice);
}

}  // namespace linerate::compress
