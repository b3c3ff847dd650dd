// Training with codecs over tensors: sent + owed = given, through skipped and repeated steps and
// changes of scale, as torch.data_parallel holds the codecs of compress to it.
#include <utility>

#include "linerate/torch_codecs/tensor_ops.hpp"
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
  constexpr compress::MakeCompressor make[] = {make_over_tensors<index>...};
  ASSERT_LE(plain_names().size(), std::size(make));
  for (std::size_t i = 0; i < plain_names().size(); ++i)
    compress::register_compressor({std::string(kPrefix) + plain_names()[i], make[i],
                                   "Its codecs over tensors, for tests.", "none"});
}

class OwedOverTensors : public testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    plain_names();  // before any is added
    feedback() = with_feedback();
    register_over_tensors(std::make_index_sequence<64>());
  }
  /// Before any was added.
  static std::vector<std::string>& feedback() {
    static std::vector<std::string> strategies;
    return strategies;
  }
};

TEST_P(OwedOverTensors, SkippedStepsAndLossScalesLoseNothing) {
  const Warnings quiet;
  ranks(GetParam(), [](comm::Communicator& communicator) {
    for (const std::string& plain : feedback())
      expect_books_balance(communicator, std::string(kPrefix) + plain);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, OwedOverTensors, testing::Values(1, 2, 3));

}  // namespace
}  // namespace linerate::torch_adapter
