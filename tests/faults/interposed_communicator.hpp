// A communicator that passes everything on. A test derives from it and acts where something is
// submitted.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "linerate/comm/communicator.hpp"

namespace linerate::faults {

class InterposedCommunicator : public comm::Communicator {
 public:
  explicit InterposedCommunicator(comm::Communicator& inner) : inner_(inner) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string transport() const override { return inner_.transport(); }
  comm::WorkPtr submit(comm::Submission what) override { return inner_.submit(std::move(what)); }
  bool reads_pieces() const override { return inner_.reads_pieces(); }
  std::unique_ptr<comm::Communicator> split(int colour, int key, std::string name) override {
    return inner_.split(colour, key, std::move(name));
  }
  void abort(const std::string& reason) override { inner_.abort(reason); }
  comm::Busy busy(std::string what, std::optional<Duration> at_most) override {
    return inner_.busy(std::move(what), at_most);
  }
  void set_checked(bool checked) override { inner_.set_checked(checked); }
  comm::Traffic traffic() const override { return inner_.traffic(); }

 private:
  comm::Communicator& inner_;
};

}  // namespace linerate::faults
