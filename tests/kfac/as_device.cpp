// The whole program by the code for devices, if the environment asks for that.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "linerate/kfac/factor_inverse.hpp"

namespace linerate::torch_adapter {
namespace {

class AsDevice : public testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv("LINERATE_TEST_AS_DEVICE")) as_device_.emplace();
  }
  void TearDown() override { as_device_.reset(); }

 private:
  std::optional<CpuAsDevice> as_device_;
};

[[maybe_unused]] const auto* const kEnvironment = testing::AddGlobalTestEnvironment(new AsDevice);

}  // namespace
}  // namespace linerate::torch_adapter
