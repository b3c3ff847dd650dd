// Training with codecs over tensors: sent + owed = given, through skipped and repeated steps and
// changes of scale, as torch.data_parallel holds the codecs of compress to it.
#include <fmt/core.h>

#include <utility>

#include "linerate/torch_codecs/tensor_codec.hpp"
#include "torch_adapter/owed_job.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr std::string_view kPrefix = "tensors-";

/// The names that there were before this program added any.
const std::vector<std::string>& plain_names() {
  static const std::vector<std::string> names = compress::compressors().names();
  return names;
}

/// The registered compressor number `index` by its own options, with its codecs over tensors.
template <std::size_t index>
std::unique_ptr<const compress::Compressor> make_over_tensors(doc::OptionReader& options) {
  doc::Component component{plain_names().at(index), {}};
  for (const std::string& key : compress::options_of(component.name))
    if (const std::string value = options.text(key, ""); !value.empty())
      component.options.emplace_back(key, value);
  return torch_codecs::over_tensors(component);
}

template <std::size_t... index>
void register_over_tensors(std::index_sequence<index...>) {
  (compress::register_compressor({std::string(kPrefix) + plain_names().at(index),
                                  make_over_tensors<index>, "Its codecs over tensors, for tests.",
                                  "none"}),
   ...);
}

class OwedOverTensors : public testing::TestWithParam<int> {
 protected:
  static constexpr std::size_t kCompressors = 18;
  static void SetUpTestSuite() {
    ASSERT_EQ(plain_names().size(), kCompressors) << "all of them";
    feedback() = with_feedback();
    register_over_tensors(std::make_index_sequence<kCompressors>());
  }
  /// Before any was added.
  static std::vector<std::string>& feedback() {
    static std::vector<std::string> strategies;
    return strategies;
  }
};

TEST_P(OwedOverTensors, IsNeitherLostNorAddedTo) {
  const Warnings quiet;
  ranks(GetParam(), [](comm::Communicator& communicator) {
    for (const std::string& plain : feedback()) {
      const std::string name = std::string(kPrefix) + plain;
      Branches job{communicator, "ddp(first=64B,bucket=2KiB)+" + name};
      Books books(job.parameters);
      for (int step = 0; step < kRandomSteps; ++step) {
        const Event event = event_of(step);
        ASSERT_EQ(books.step(job, step, event),
                  event == Event::ordinary || event == Event::sent_again)
            << job.strategy << ", step " << step;
      }
      double worst = 0;
      for (std::size_t p = 0; p < job.size(); ++p) {
        const double error = books.error(job, p);
        worst = std::max(worst, error / books.largest[p]);
        EXPECT_LE(error, bound_of(name, communicator.size(), books, p))
            << job.strategy << ", " << job.parameters[p].first;
      }
      if (communicator.rank() == 0)
        fmt::print("{} ranks, {}: sent + owed is off by {:.1e} of what was given\n",
                   communicator.size(), name, worst);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OwedOverTensors, testing::Values(1, 2, 3));

}  // namespace
}  // namespace linerate::torch_adapter
