// A program whose gradients are given, and the books of what compressors sent of them and owe.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "linerate/compress/registry.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/random.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/registered_compressors.hpp"

namespace linerate::torch_adapter {

inline constexpr int kRandomSteps = 60;

/// What happens in a step.
enum class Event {
  ordinary,
  sent_again,    // a gradient changes after it was sent: the step is exchanged twice
  skipped,       // by all ranks
  not_a_number,  // on one rank
  too_large,     // on one rank
};

/// Of a step alone, the same on all ranks.
inline Event event_of(int step) {
  const double at = random_unit(random_key(7, static_cast<std::uint64_t>(step)), 0);
  constexpr std::array kEvents = {Event::sent_again, Event::skipped, Event::not_a_number,
                                  Event::too_large};
  const auto which = static_cast<std::size_t>(at * 10);
  return which < kEvents.size() ? kEvents[which] : Event::ordinary;
}
/// Gradients become a million times as large or as small, and what they were again.
inline double scale_of(int step) { return std::array{1.0, 1e6, 1.0, 1e-6, 1.0}[step / 12 % 5]; }

/// Four parameters, of which the two-phase exchange cuts one for two owners; a step's gradients are
/// what their sum with given factors has.
struct Branches {
  comm::Communicator& communicator;
  std::string strategy;
  bool is_rescaled = true;
  std::string device_group = {};  // steps are enqueued, by the code for devices
  NamedTensors parameters = four();
  DataParallel parallel{(need_gradients(), parameters),
                        {},
                        communicator,
                        {.strategy = strategy, .device_group = device_group}};

  static NamedTensors four() {
    return {{"matrix", torch::zeros({24, 20}, at::kFloat)},
            {"wide", torch::zeros({64, 66}, at::kFloat)},
            {"vector", torch::zeros({70}, at::kFloat)},
            {"scalar", torch::zeros({}, at::kFloat)}};
  }
  void need_gradients() {
    for (auto& [name, tensor] : parameters) tensor.requires_grad_(true);
  }
  std::size_t size() const { return parameters.size(); }
  double scale(int step) const { return is_rescaled ? scale_of(step) : 1; }

  /// Of (step, rank, parameter) alone.
  static bool uses(int step, int rank, std::size_t parameter) {
    const std::uint64_t key = random_key(parameter, static_cast<std::uint64_t>(step));
    if (parameter > 0 && random_unit(key, 0) < 0.5) return false;  // no rank
    return parameter == 0 || random_unit(key, 1 + static_cast<std::uint64_t>(rank)) < 0.6;
  }
  at::Tensor gradient(int step, int rank, std::size_t parameter) const {
    const double seed = 100.0 * step + 10 * rank + static_cast<double>(parameter);
    return numbers(parameters[parameter].second.sizes(), seed, at::kFloat);
  }
  bool any_uses(int step, std::size_t parameter) const {
    for (int rank = 0; rank < communicator.size(); ++rank)
      if (uses(step, rank, parameter)) return true;
    return false;
  }
  /// The mean of the ranks.
  at::Tensor mean_gradient(int step, std::size_t parameter) const {
    at::Tensor sum = torch::zeros(parameters[parameter].second.sizes(), at::kDouble);
    for (int rank = 0; rank < communicator.size(); ++rank)
      if (uses(step, rank, parameter)) sum += gradient(step, rank, parameter);
    return sum / communicator.size();
  }
  /// Its gradients so many times as large, and `spoilt` added to those of the last rank.
  void backward(int step, double scale = 1, float spoilt = 0) {
    for (auto& [name, tensor] : parameters) tensor.mutable_grad().reset();
    const int rank = communicator.rank();
    at::Tensor loss = torch::zeros({}, at::kFloat);
    for (std::size_t p = 0; p < size(); ++p) {
      if (!uses(step, rank, p)) continue;
      at::Tensor factor = gradient(step, rank, p) * scale;
      if (rank == communicator.size() - 1) factor += spoilt;
      loss = loss + (parameters[p].second * factor).sum();
    }
    loss.backward();
  }
  /// A whole step; whether it counts. One that is enqueued and not usable counts with nothing in
  /// it, which the host does not know yet.
  bool step(int number, Event event) {
    const float spoilt = event == Event::not_a_number ? kFloatNaN
                         : event == Event::too_large  ? 3e38f
                                                      : 0;
    backward(number, scale(number), spoilt);
    const torch::NoGradGuard no_grad;
    if (event == Event::sent_again) parameters[0].second.mutable_grad().mul_(1);
    if (event == Event::skipped) {
      parallel.skip_step();
      return false;
    }
    const bool is_infinite = parallel.finish().infinite;
    EXPECT_EQ(is_infinite, device_group.empty() && spoilt != 0) << strategy << ", step " << number;
    return spoilt == 0;
  }
  /// Of every rank.
  std::vector<compress::CompressionState> states() {
    std::vector<compress::CompressionState> list;
    for (const std::string& text : parallel.compression_state())
      list.push_back(compress::compression_state_from(text, "state"));
    return list;
  }
};

/// The field of that name, of all codecs in turn: one of the whole tensor, or one a chunk. Empty if
/// there is none.
inline at::Tensor field_of(const std::vector<compress::SavedState>& codecs, std::string_view name) {
  at::Tensor values = torch::empty({0}, at::kFloat);
  for (const compress::SavedState& codec : codecs)
    for (const compress::SavedField& field : codec) {
      if (field.name != name) continue;
      const std::size_t bytes = field.bytes.size();
      const at::Tensor read =
          torch::empty({static_cast<std::int64_t>(bytes / sizeof(float))}, at::kFloat);
      std::copy_n(field.bytes.data(), bytes, static_cast<std::byte*>(read.data_ptr()));
      values = torch::cat({values, read});
    }
  return values.to(at::kDouble);
}

/// The mean over ranks of what they keep of a tensor in fields of that name.
inline at::Tensor mean_of_field(const std::vector<compress::CompressionState>& states,
                                const NamedTensors::value_type& parameter, std::string_view field) {
  const auto& [name, tensor] = parameter;
  at::Tensor sum = torch::zeros({tensor.numel()}, at::kDouble);
  for (const compress::CompressionState& state : states) {
    const auto found = state.tensors.find(name);
    if (found == state.tensors.end()) continue;
    std::vector<compress::SavedState> codecs = found->second.two_phase.workers;
    codecs.push_back(found->second.codec);
    const at::Tensor values = field_of(codecs, field);
    if (values.numel() > 0) sum += values / static_cast<double>(states.size());
  }
  return sum.reshape(tensor.sizes());
}

/// The mean of the ranks' residuals, what their codecs have not sent, and what owners owe of their
/// chunks, in units of the mean.
inline at::Tensor owed(Branches& job, std::size_t parameter) {
  const auto& [name, tensor] = job.parameters[parameter];
  const std::vector<compress::CompressionState> states = job.states();
  const int ranks = job.communicator.size();
  const at::Tensor sum = mean_of_field(states, job.parameters[parameter], "accumulated").flatten();
  const std::vector<compress::Chunk> chunks = compress::cut_into_chunks(tensor.numel(), ranks);
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    const auto found = states[rank].tensors.find(name);
    if (found == states[rank].tensors.end()) continue;
    const compress::CompressedTensorState& kept = found->second;
    if (!kept.residual.empty()) sum.add_(torch::tensor(kept.residual, at::kDouble) / ranks);
    const at::Tensor own = field_of({kept.two_phase.server}, compress::kServerResidual);
    if (own.numel() > 0) sum.narrow(0, chunks[rank].first, chunks[rank].elements).add_(own);
  }
  return sum.reshape(tensor.sizes());
}

/// What a method sends of is keep * (momentum as the last step left it) + take * gradient.
struct OwnMomentum {
  double keep = 0, take = 1;
};
inline OwnMomentum momentum_of(const std::string& strategy, std::int64_t elements = 2) {
  const auto has = [&](const char* text) { return strategy.find(text) != std::string::npos; };
  if (has("onebit-adam") && elements == 1) return {};  // it travels dense, as a gradient
  if (has("dgc")) return has("nesterov=yes") ? OwnMomentum{0.9, 1.9} : OwnMomentum{0.9, 1};
  if (has("onebit-adam") && !has("beta=0") && !has("freeze_step=99")) return {0.9, 0.1};
  return {};
}

/// Sums in f64 of what the steps that counted gave, after a method's own momentum, and sent. A copy
/// has its own.
struct Books {
  explicit Books(const NamedTensors& parameters)
      : travelled(parameters.size()), largest(parameters.size()) {
    for (const auto& [name, tensor] : parameters)
      given.push_back(torch::zeros(tensor.sizes(), at::kDouble));
    sent = given;
  }

  /// A step of the job, entered if it counts; whether it does.
  bool step(Branches& job, int number, Event event) {
    const std::vector<compress::CompressionState> before =
        momentum_of(job.strategy).keep > 0 ? job.states()
                                           : std::vector<compress::CompressionState>();
    if (!job.step(number, event)) return false;
    for (std::size_t p = 0; p < job.size(); ++p) {
      if (!job.any_uses(number, p)) continue;
      const OwnMomentum momentum = momentum_of(job.strategy, job.parameters[p].second.numel());
      at::Tensor mean = momentum.take * job.scale(number) * job.mean_gradient(number, p);
      if (momentum.keep > 0)
        mean += momentum.keep * mean_of_field(before, job.parameters[p], "momentum");
      given[p] = given[p] + mean;
      largest[p] = std::max(largest[p], given[p].norm().item<double>());
      sent[p] = sent[p] + job.parameters[p].second.grad();
      travelled[p] += mean.norm().item<double>();
      travelled[p] += job.parameters[p].second.grad().norm().item<double>();
    }
    return true;
  }

  double error(Branches& job, std::size_t p) const {
    return (given[p] - sent[p] - owed(job, p)).norm().item<double>();
  }

  std::vector<at::Tensor> given, sent;
  std::vector<double> travelled, largest;  // by parameter: of norms
};

/// Every method of the registry that keeps what it did not send.
inline std::vector<std::string> keeping_methods() {
  std::vector<std::string> all;
  for (const std::string& name : compress::compressors().names())
    if (const std::string method = small_enough(name);
        compress::make_compressor(doc::parse_component(method))->residual() !=
        compress::Residual::none)
      all.push_back(method);
  return all;
}

/// Those by every exchange that their payloads can take, and some with other options.
inline std::vector<std::string> with_feedback() {
  std::vector<std::string> all = {"powersgd(rank=1, warmup=3, dense_below=0)",
                                  "acpsgd(rank=1, warmup=3, dense_below=0)",
                                  "onebit-adam(beta=0, exchange=gather, dense_below=0)",
                                  "onebit-adam(beta=0, exchange=two-phase, dense_below=0)",
                                  "dgc(density=0.1, warmup=3, dense_below=0)",
                                  "dgc(density=0.1, nesterov=yes, dense_below=0)"};
  for (const std::string& method : keeping_methods()) {
    std::vector<std::string> each = by_each_exchange(method);
    if (each.empty()) each = {method};
    all.insert(all.end(), each.begin(), each.end());
  }
  return all;
}

/// What a step may lose of what it sends: sums of f32; of halves if they travel.
inline double rounding(const std::string& strategy) {
  if (strategy.find("bf16") != std::string::npos) return 0x1p-8;
  return strategy.find("fp16") != std::string::npos ? 0x1p-11 : 0x1p-22;
}

/// f32: 1e-5 of the largest sum of gradients there has been; of what a half rounds, by each rank.
inline double bound_of(const std::string& strategy, int ranks, const Books& books, std::size_t p) {
  const bool is_half = rounding(strategy) > 0x1p-20;
  return is_half ? ranks * rounding(strategy) * books.travelled[p] : 1e-5 * books.largest[p];
}

/// A run by each strategy, which ends after some steps, and for each strategy one that goes on from
/// there: what both sent and what is owed in the end are what was given. A step that all ranks skip
/// is the first of each second run. What travels dense owes nothing after it has counted.
///
/// Every method that keeps what it did not send, once; by the two-phase exchange; in phases in
/// which tensors travel dense; and strategies that send every tensor as it is.
inline void expect_pairs_balance(comm::Communicator& communicator,
                                 const std::string& device_group = {}) {
  constexpr int kFirst = 6, kThen = 3;
  std::vector<std::string> strategies = keeping_methods();
  strategies.insert(strategies.end(), {"topk(density=0.1, exchange=two-phase, dense_below=0)",
                                       "powersgd(rank=1, warmup=99, dense_below=0)",
                                       "acpsgd(rank=1, warmup=99, dense_below=0)",
                                       "onebit-adam(freeze_step=99, dense_below=0)",
                                       "dgc(density=0.1, nesterov=yes, dense_below=0)"});
  for (std::string& method : strategies) method = "ddp(first=64B,bucket=2KiB)+" + method;
  const std::size_t coding = strategies.size();
  strategies.insert(strategies.end(),
                    {"ddp", "ddp(wire=bf16)", "bulk", "dear", "ddp+topk(density=1, dense_below=0)",
                     "bulk+randomk(density=1, dense_below=0)"});
  for (std::size_t a = 0; a < strategies.size(); ++a) {
    Branches first{communicator, strategies[a], false, device_group};
    Books given(first.parameters);
    for (int step = 0; step < kFirst; ++step)
      given.step(first, step, step == 3 ? Event::skipped : Event::ordinary);
    const std::vector<std::string> saved = first.parallel.compression_state();
    EXPECT_EQ(saved.empty(), a >= coding) << strategies[a];
    for (std::size_t b = 0; b < strategies.size(); ++b) {
      Branches then{communicator, strategies[b], false, device_group};
      Books books = given;
      then.parallel.load_compression_state(saved, strategies[a]);
      std::vector<bool> was_used(then.size());
      for (int step = kFirst; step < kFirst + kThen; ++step) {
        const bool counts =
            books.step(then, step, step == kFirst ? Event::skipped : Event::ordinary);
        for (std::size_t p = 0; p < then.size(); ++p)
          was_used[p] = was_used[p] || (counts && then.any_uses(step, p));
      }
      for (std::size_t p = 0; p < then.size(); ++p) {
        const std::string title =
            strategies[a] + " -> " + strategies[b] + ", " + then.parameters[p].first;
        const double bound = std::max(bound_of(strategies[a], communicator.size(), books, p),
                                      bound_of(strategies[b], communicator.size(), books, p));
        EXPECT_LE(books.error(then, p), bound) << title;
        if (b >= coding && was_used[p]) {
          EXPECT_EQ(owed(then, p).abs().max().item<double>(), 0) << title;
        }
      }
    }
  }
}

/// After random steps, some of which do not count: what was sent and what is owed are what was
/// given. Relative to the largest sum of gradients there has been: what is owed was rounded when it
/// was.
inline void expect_books_balance(comm::Communicator& communicator, const std::string& method,
                                 const std::string& device_group = {}) {
  Branches job{communicator, "ddp(first=64B,bucket=2KiB)+" + method, true, device_group};
  Books books(job.parameters);
  for (int step = 0; step < kRandomSteps; ++step) {
    const Event event = event_of(step);
    ASSERT_EQ(books.step(job, step, event), event == Event::ordinary || event == Event::sent_again)
        << job.strategy << ", step " << step;
  }
  for (std::size_t p = 0; p < job.size(); ++p)
    EXPECT_LE(books.error(job, p), bound_of(method, communicator.size(), books, p))
        << job.strategy << ", " << job.parameters[p].first;
}

}  // namespace linerate::torch_adapter
