// Runs the Plan's compressors for what they cost: on noise, each rank by itself.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "linerate/exec/compression.hpp"
#include "linerate/exec/operation.hpp"

namespace linerate::exec {

/// Encodes noise, and decodes its own payload in place of every rank's.
///
/// `rehearse --real codec` runs this in the codec's lane. The collectives of a rehearsal move other
/// memory (PayloadArena), because the numbers on the wire do not matter. But a decode needs
/// payloads of the right form. So after each encode this copies its own block to where the other
/// ranks' blocks would arrive. Each rank then seems to have sent as much as this one.
class CompressionLoad : public Operation {
 public:
  CompressionLoad(std::shared_ptr<const doc::Plan> plan, int rank, int ranks);

  void run(const doc::TaskGraph& graph, const doc::Task& task) override;

 private:
  class Memory : public Payloads {
   public:
    explicit Memory(const doc::Plan& plan);
    comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override;
    /// Buckets are the noise, or what a decode writes over.
    void set_decoding(bool decoding) { decoding_ = decoding; }

   private:
    std::vector<float> noise_, decoded_;  // as large as the largest bucket
    std::map<std::pair<const doc::TaskGraph*, std::int32_t>, std::vector<std::byte>> encoded_;
    bool decoding_ = false;
  };

  void stand_in_for_others(const doc::TaskGraph& graph, const doc::Task& task);
  void repeat_own_block(const doc::TaskGraph& graph, std::int32_t from, std::int32_t to);
  void repeat_own_part(const doc::TaskGraph& graph, std::int32_t payload, std::int32_t counts);

  std::shared_ptr<const doc::Plan> plan_;
  int rank_, ranks_;
  Memory memory_;
  Compression compression_;
  std::set<std::int32_t> encoded_;  // buckets, in this step
};

}  // namespace linerate::exec
