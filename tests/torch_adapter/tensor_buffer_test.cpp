// A tensor is a buffer if its memory may travel as it is, and else the message says what to do.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/buffer.hpp"

namespace linerate::torch_adapter {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(TensorBuffer, HasTheTensorsTypeMemoryAndCount) {
  for (std::size_t d = 0; d < kDTypeNames.size(); ++d) {
    const auto type = static_cast<DType>(d);
    at::Tensor tensor = at::empty({2, 3}, at::TensorOptions(scalar_type(type)));
    const comm::Buffer b = buffer(tensor);
    EXPECT_EQ(b.data, tensor.data_ptr());
    EXPECT_EQ(b.count.value, 6);
    EXPECT_EQ(b.dtype, type);
    const at::Tensor& read = tensor;
    static_assert(std::is_same_v<decltype(buffer(read)), comm::ConstBuffer>);
    EXPECT_EQ(buffer(read).dtype, type);
    EXPECT_EQ(buffer(read).data, tensor.data_ptr());
  }
  at::Tensor scalar = at::empty({}, at::kLong), none = at::empty({0});
  EXPECT_EQ(buffer(scalar).count.value, 1);
  EXPECT_EQ(buffer(none).count.value, 0);
  at::Tensor rows = at::empty({4, 3}).narrow(0, 1, 2);  // contiguous, not at the beginning
  EXPECT_EQ(buffer(rows).data, rows.data_ptr());
}

TEST(TensorBuffer, TravelsInCollectives) {
  comm::run_ranks(3, [](comm::Communicator& c) {
    for (const at::ScalarType type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
      at::Tensor sum = at::full({5}, c.rank() + 1, at::TensorOptions(type));
      c.all_reduce(buffer(sum), comm::Reduce::sum, "sum")->wait();
      EXPECT_TRUE(sum.equal(at::full({5}, 6, at::TensorOptions(type)))) << sum;
    }
    const at::Tensor mine = at::full({2}, c.rank(), at::TensorOptions(at::kLong));
    at::Tensor all = at::empty({3, 2}, at::kLong);
    c.all_gather(buffer(mine), buffer(all), "all")->wait();
    EXPECT_TRUE(all.select(1, 0).equal(at::arange(3, at::kLong)));
  });
}

std::string refused(at::Tensor tensor) {
  std::string message;
  try {
    static_cast<void>(buffer(tensor));
  } catch (const UsageError& e) {
    message = e.what();
  }
  const at::Tensor& read = tensor;
  EXPECT_THROW(static_cast<void>(buffer(read)), UsageError);
  return message;
}

TEST(TensorBuffer, RefusesWhatCannotTravelAndSaysWhatToDo) {
  EXPECT_THAT(refused(at::Tensor()), HasSubstr("an undefined one"));
  EXPECT_THAT(refused(at::ones({2, 3}).t()),
              AllOf(HasSubstr("contiguous memory"), HasSubstr("sizes [3, 2] with strides [1, 3]"),
                    HasSubstr("contiguous()")));
  EXPECT_THAT(refused(at::ones({4}).slice(0, 0, 4, 2)), HasSubstr("strides [2]"));
  EXPECT_THAT(refused(at::_neg_view(at::ones({2}))), HasSubstr("negated lazily"));
  EXPECT_THAT(refused(at::empty({2}, at::kBool)), AllOf(HasSubstr("Bool"), HasSubstr("to()")));
  EXPECT_THAT(refused(at::empty({2}, at::kShort)), HasSubstr("Short"));
  EXPECT_THAT(refused(at::empty({2}, at::kComplexFloat)), HasSubstr("ComplexFloat"));
  EXPECT_THAT(refused(at::ones({2, 2}).to_sparse()), HasSubstr("a dense tensor"));
  EXPECT_THAT(refused(at::empty({2}, at::TensorOptions(at::kMeta))),
              AllOf(HasSubstr("one on meta"), HasSubstr("cpu()")));
}

template <typename T>
concept HasTensorBuffer = requires(T&& tensor) {
  buffer(std::forward<T>(tensor));
};
static_assert(HasTensorBuffer<at::Tensor&> && HasTensorBuffer<const at::Tensor&>);
static_assert(!HasTensorBuffer<at::Tensor>);  // a temporary is gone before the collective begins

}  // namespace
}  // namespace linerate::torch_adapter
