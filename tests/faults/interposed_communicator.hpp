// A communicator that passes everything on and lets a test act at a collective of a given name.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "linerate/comm/communicator.hpp"

namespace linerate::faults {

/// What happens at one submission; `buffer` is what the collective reduces or receives into.
class Interposer {
 public:
  virtual ~Interposer() = default;
  /// Before the submission; may change the element count.
  virtual void before(const std::string& name, comm::Buffer& buffer) = 0;
  /// Whether the result is to be spoilt once it is there.
  virtual bool spoils(const std::string& name) = 0;
};

class InterposedCommunicator : public comm::Communicator {
 public:
  InterposedCommunicator(comm::Communicator& inner, Interposer& interposer)
      : inner_(inner), interposer_(interposer) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string transport() const override { return inner_.transport(); }
  comm::WorkPtr all_reduce(comm::Buffer b, comm::Reduce op, std::string name) override {
    return submit(b, name, [&] { return inner_.all_reduce(b, op, name); });
  }
  comm::WorkPtr reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::Reduce op,
                               std::string name) override {
    return submit(out, name, [&] { return inner_.reduce_scatter(in, out, op, name); });
  }
  comm::WorkPtr all_reduce(std::vector<comm::Piece> pieces, comm::Buffer b,
                           std::string name) override {
    return submit(b, name, [&, count = b.count.value] {
      if (b.count.value != count)  // the fault, not what the pieces are checked for
        return inner_.all_reduce(b, comm::Reduce::sum, name);
      return inner_.all_reduce(std::move(pieces), b, name);
    });
  }
  comm::WorkPtr reduce_scatter(std::vector<comm::Piece> pieces, comm::Buffer b,
                               std::string name) override {
    return submit(b, name, [&] { return inner_.reduce_scatter(std::move(pieces), b, name); });
  }
  bool reads_pieces() const override { return inner_.reads_pieces(); }
  comm::WorkPtr all_gather(comm::ConstBuffer in, comm::Buffer out, std::string name) override {
    return submit(out, name, [&] { return inner_.all_gather(in, out, name); });
  }
  comm::WorkPtr all_gather_v(comm::ConstBuffer in, comm::Buffer out,
                             std::span<const std::int64_t> counts, std::string name) override {
    return submit(out, name, [&] { return inner_.all_gather_v(in, out, counts, name); });
  }
  comm::WorkPtr all_to_all(comm::ConstBuffer in, comm::Buffer out, std::string name) override {
    return submit(out, name, [&] { return inner_.all_to_all(in, out, name); });
  }
  comm::WorkPtr broadcast(comm::Buffer b, int root, std::string name) override {
    return submit(b, name, [&] { return inner_.broadcast(b, root, name); });
  }
  comm::WorkPtr barrier(std::string name) override {
    comm::Buffer none{nullptr, {0}, DType::u8};
    interposer_.before(name, none);
    return inner_.barrier(std::move(name));
  }
  std::unique_ptr<comm::Communicator> split(int colour, int key, std::string name) override {
    return inner_.split(colour, key, std::move(name));
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  comm::Busy busy(std::string what, std::optional<Duration> at_most) override {
    return inner_.busy(std::move(what), at_most);
  }
  void set_checked(bool checked) override { inner_.set_checked(checked); }
  comm::Traffic traffic() const override { return inner_.traffic(); }

 protected:
  comm::Communicator& inner_;

 private:
  /// A spoilt result has all ones in its first element: a NaN in every floating-point type.
  template <typename Submit>
  comm::WorkPtr submit(comm::Buffer& b, const std::string& name, const Submit& passed_on) {
    interposer_.before(name, b);
    const bool spoils = interposer_.spoils(name);
    comm::WorkPtr work = passed_on();
    if (spoils) {
      work->wait();
      const auto bytes = static_cast<std::size_t>(size_of(b.dtype));
      std::fill_n(static_cast<unsigned char*>(b.data), bytes, static_cast<unsigned char>(0xff));
    }
    return work;
  }

  Interposer& interposer_;
};

}  // namespace linerate::faults
