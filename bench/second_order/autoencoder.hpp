// The autoencoder benchmark on several ranks, each with its share of the images.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "kfac/autoencoder_training.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"

namespace linerate::bench {

/// One training among several on a communicator.
class Autoencoder {
 public:
  Autoencoder(const std::string& strategy, comm::Communicator& communicator)
      : communicator_(communicator),
        recorder_(communicator, exec::agree_origin(communicator), "trained"),
        mine_(share(communicator)),
        optimizer_(net_.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)) {
    const auto kfac = plan::kfac_of(doc::parse_strategy(strategy));
    if (kfac) {
      torch_adapter::KfacOptions options =
          torch_adapter::autoencoder::kfac_options(torch_adapter::Fisher::empirical);
      options.factor_interval.reset();  // the strategy says them
      options.inverse_interval.reset();
      if (kfac->eigen) options.method = torch_adapter::InverseMethod::eigen;
      options.conv_subsampling = kfac->subsample;
      pre_ = std::make_unique<torch_adapter::KFAC>(net_, options);
    }
    parallel_.emplace(net_, communicator,
                      torch_adapter::DataParallelOptions{.strategy = strategy,
                                                         .preconditioner = pre_.get(),
                                                         .recorder = &recorder_,
                                                         .name = strategy});
  }

  /// Collective. Records the step; the loss is of this rank's images.
  double step() {
    recorder_.begin_step(next_);
    const std::int64_t start = steady_ns();
    const at::Tensor loss = torch_adapter::autoencoder::loss(net_.forward(mine_), mine_);
    const std::int64_t backward = steady_ns();
    loss.backward();
    const std::int64_t exchange = steady_ns();
    add(doc::TaskKind::forward, start, backward);
    add(doc::TaskKind::backward, backward, exchange);
    const torch_adapter::StepReport report =
        pre_ ? parallel_->step(*pre_, optimizer_) : parallel_->step(optimizer_);
    recorder_.add_step(next_++, start, steady_ns(), report.variant);
    return loss.item<double>();
  }

  /// Steps after those of earlier calls; complete on rank 0. Collective.
  doc::Timeline run(std::int64_t steps) {
    step();
    communicator_.barrier("before a timed round")->wait();
    const std::int32_t first = next_;
    for (std::int64_t i = 0; i < steps; ++i) step();
    parallel_->settle();
    doc::Timeline timeline = recorder_.timeline();
    std::erase_if(timeline.events, [=](const doc::Event& e) { return e.step < first; });
    std::erase_if(timeline.steps, [=](const doc::Step& s) { return s.index < first; });
    return exec::gather_timeline(communicator_, timeline);
  }

 private:
  static at::Tensor share(const comm::Communicator& communicator) {
    return torch_adapter::autoencoder::images().chunk(
        communicator.size())[static_cast<std::size_t>(communicator.rank())];
  }
  void add(doc::TaskKind kind, std::int64_t start_ns, std::int64_t end_ns) {
    doc::Event event;
    event.kind = kind;
    event.resource = doc::Resource::compute;
    event.start_ns = start_ns;
    event.end_ns = end_ns;
    recorder_.add(event);
  }

  comm::Communicator& communicator_;
  exec::Recorder recorder_;
  torch_adapter::autoencoder::Net net_;
  at::Tensor mine_;
  torch::optim::SGD optimizer_;
  std::unique_ptr<torch_adapter::KFAC> pre_;
  std::optional<torch_adapter::DataParallel> parallel_;
  std::int32_t next_ = 0;
};

}  // namespace linerate::bench
