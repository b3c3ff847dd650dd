// A communicator that passes everything on and notes what was submitted.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"

namespace linerate::torch_adapter {

class NotingCommunicator : public comm::Communicator {
 public:
  explicit NotingCommunicator(comm::Communicator& inner) : inner_(inner) {}

  /// "NAME: S bytes", in order; S as core/dtype.hpp has it. Empties the list.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::move(submitted_);
  }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string transport() const override { return inner_.transport(); }
  comm::WorkPtr all_reduce(comm::Buffer b, comm::Reduce op, std::string name) override {
    note(name, b.count.value, b.dtype);
    return inner_.all_reduce(b, op, std::move(name));
  }
  comm::WorkPtr reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::Reduce op,
                               std::string name) override {
    note(name, in.count.value, in.dtype);
    return inner_.reduce_scatter(in, out, op, std::move(name));
  }
  comm::WorkPtr all_reduce(std::vector<comm::Piece> pieces, comm::Buffer b,
                           std::string name) override {
    note(name, b.count.value, b.dtype);
    return inner_.all_reduce(std::move(pieces), b, std::move(name));
  }
  comm::WorkPtr reduce_scatter(std::vector<comm::Piece> pieces, comm::Buffer b,
                               std::string name) override {
    note(name, b.count.value, b.dtype);
    return inner_.reduce_scatter(std::move(pieces), b, std::move(name));
  }
  bool reads_pieces() const override { return inner_.reads_pieces(); }
  comm::WorkPtr all_gather(comm::ConstBuffer in, comm::Buffer out, std::string name) override {
    note(name, out.count.value, out.dtype);
    return inner_.all_gather(in, out, std::move(name));
  }
  comm::WorkPtr all_gather_v(comm::ConstBuffer in, comm::Buffer out,
                             std::span<const std::int64_t> counts, std::string name) override {
    note(name, out.count.value, out.dtype);
    return inner_.all_gather_v(in, out, counts, std::move(name));
  }
  comm::WorkPtr all_to_all(comm::ConstBuffer in, comm::Buffer out, std::string name) override {
    note(name, in.count.value, in.dtype);
    return inner_.all_to_all(in, out, std::move(name));
  }
  comm::WorkPtr broadcast(comm::Buffer b, int root, std::string name) override {
    note(name, b.count.value, b.dtype);
    return inner_.broadcast(b, root, std::move(name));
  }
  comm::WorkPtr barrier(std::string name) override {
    note(name, 0, DType::u8);
    return inner_.barrier(std::move(name));
  }
  std::unique_ptr<comm::Communicator> split(int colour, int key, std::string name) override {
    return inner_.split(colour, key, std::move(name));
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  using Communicator::busy;
  comm::Busy busy(std::string what, std::optional<Duration> at_most) override {
    return inner_.busy(std::move(what), at_most);
  }
  void set_checked(bool checked) override { inner_.set_checked(checked); }
  comm::Traffic traffic() const override { return inner_.traffic(); }

 private:
  void note(const std::string& name, std::int64_t count, DType type) {
    const std::lock_guard lock(mutex_);
    submitted_.push_back(fmt::format("{}: {} bytes", name, count * size_of(type)));
  }

  comm::Communicator& inner_;
  std::mutex mutex_;
  std::vector<std::string> submitted_;
};

}  // namespace linerate::torch_adapter
