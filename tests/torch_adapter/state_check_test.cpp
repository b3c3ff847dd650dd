// Ranks that hold other bits are told apart, and told so on every rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/agreed_model.hpp"
#include "linerate/torch_adapter/buffer.hpp"
#include "linerate/torch_adapter/state_check.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

/// Three tensors that are the same wherever they are made.
NamedTensors sample() {
  NamedTensors all = {{"conv1.weight", at::full({4, 3}, 0.5f)},
                      {"conv1.bias", at::zeros({5})},
                      {"steps", at::zeros({}, at::kLong)}};
  return all;
}

using Change = std::function<void(NamedTensors&)>;

/// What each rank was told; "" where it was told nothing. Some ranks change their tensors.
std::vector<std::string> told(int ranks, const std::map<int, Change>& changes) {
  std::vector<std::string> messages(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& c) {
    NamedTensors mine = sample();
    if (changes.contains(c.rank())) changes.at(c.rank())(mine);
    messages[static_cast<std::size_t>(c.rank())] = thrown_on_every_rank<CommError>(
        [&] { require_same_tensors(c, "weights after step 120", mine); });
    c.barrier("the communicator is usable afterwards")->wait();
  });
  return messages;
}

void flip_bit(const at::Tensor& tensor, std::size_t byte, int bit) {
  static_cast<unsigned char*>(tensor.data_ptr())[byte] ^= static_cast<unsigned char>(1 << bit);
}

TEST(RequireSameTensors, EqualOnesPassOnAnyNumberOfRanks) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    EXPECT_THAT(told(ranks, {}), AllOf(SizeIs(ranks), Each(""))) << ranks;
}

TEST(RequireSameTensors, OneBitOnOneRankIsToldToAllWithTheTensorAndBothRanks) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (int changed = 0; changed < ranks; ++changed) {
      const auto messages =
          told(ranks, {{changed, [](NamedTensors& t) { flip_bit(t[1].second, 19, 0); }}});
      const std::string other = std::to_string(changed == 0 ? 1 : changed);
      EXPECT_THAT(messages, AllOf(SizeIs(ranks), Each(messages[0])));
      EXPECT_THAT(messages[0],
                  AllOf(HasSubstr("weights after step 120: ranks differ in \"conv1.bias\": rank 0 "
                                  "has 0x"),
                        HasSubstr(", rank " + other + " has 0x"), HasSubstr("go back")));
    }
}

TEST(RequireSameTensors, EveryBitCounts) {
  const at::Tensor tensor = at::full({3}, 0.5f);  // 12 bytes: a word and a half
  const std::uint64_t before = hash_of(tensor);
  for (std::size_t byte = 0; byte < 12; ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      flip_bit(tensor, byte, bit);
      EXPECT_NE(hash_of(tensor), before) << byte << " " << bit;
      flip_bit(tensor, byte, bit);
    }
  EXPECT_EQ(hash_of(tensor), before);
}

TEST(RequireSameTensors, TheFirstOfSeveralIsNamedWhicheverRankHasIt) {
  EXPECT_THAT(told(3, {{1, [](NamedTensors& t) { flip_bit(t[2].second, 0, 0); }},
                       {2, [](NamedTensors& t) { flip_bit(t[0].second, 0, 0); }}}),
              Each(AllOf(HasSubstr("\"conv1.weight\""), HasSubstr("rank 2 has"))));
}

TEST(RequireSameTensors, BitsAreComparedAndNotValues) {
  EXPECT_THAT(told(2, {{1, [](NamedTensors& t) { t[1].second.fill_(-0.0f); }}}),
              Each(HasSubstr("\"conv1.bias\"")));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(hash_of(at::full({2}, nan)), hash_of(at::full({2}, nan)));
  EXPECT_NE(hash_of(at::full({2}, nan)), hash_of(at::full({2}, -nan)));
}

TEST(RequireSameTensors, SizesAndElementTypesAreComparedToo) {
  EXPECT_THAT(told(2, {{1,
                        [](NamedTensors& t) {
                          t[0].second = t[0].second.reshape({3, 4});
                        }}}),
              Each(HasSubstr("ranks differ in \"conv1.weight\"")));
  EXPECT_THAT(told(3, {{2, [](NamedTensors& t) { t[1].second = at::zeros({5}, at::kInt); }}}),
              Each(HasSubstr("ranks differ in \"conv1.bias\"")));
  EXPECT_NE(hash_of(at::zeros({0, 2})), hash_of(at::zeros({2, 0})));
  EXPECT_NE(hash_of(at::zeros({1})), hash_of(at::zeros({})));
}

TEST(RequireSameTensors, HowATensorLiesInMemoryDoesNotMatter) {
  const Change transpose_twice = [](NamedTensors& t) {
    t[0].second = t[0].second.t().contiguous().t();
  };
  EXPECT_THAT(told(2, {{1, transpose_twice}}), Each(""));
}

TEST(RequireSameTensors, ListsOfOtherLengthOrNamesAreTold) {
  EXPECT_THAT(told(2, {{1, [](NamedTensors& t) { t.pop_back(); }}}),
              Each(HasSubstr("rank 0 has \"steps\", rank 1 has none (2 tensors)")));
  EXPECT_THAT(told(2, {{0, [](NamedTensors& t) { t.clear(); }}}),
              Each(HasSubstr("rank 0 has none (0 tensors), rank 1 has \"conv1.weight\"")));
  EXPECT_THAT(told(2, {{1, [](NamedTensors& t) { t[1].first = "bias of mine"; }}}),
              Each(HasSubstr("rank 0 has \"conv1.bias\", rank 1 has \"bias of mine\"")));
}

// A tensor is a buffer if its memory may travel as it is, and else the message says what to do.

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

TEST_ON(TensorBuffer, TravelsInCollectives, comm::run_ranks, 3) {
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte}) {
    at::Tensor sum = at::full({5}, communicator.rank() + 1, at::TensorOptions(type));
    communicator.all_reduce(buffer(sum), comm::Reduce::sum, "sum")->wait();
    EXPECT_TRUE(sum.equal(at::full({5}, 6, at::TensorOptions(type)))) << sum;
  }
  const at::Tensor mine = at::full({2}, communicator.rank(), at::TensorOptions(at::kLong));
  at::Tensor all = at::empty({3, 2}, at::kLong);
  communicator.all_gather(buffer(mine), buffer(all), "all")->wait();
  EXPECT_TRUE(all.select(1, 0).equal(at::arange(3, at::kLong)));
}

std::string refused(at::Tensor tensor) {
  const at::Tensor& read = tensor;
  EXPECT_THROW(static_cast<void>(buffer(read)), UsageError);
  return thrown_by([&] { static_cast<void>(buffer(tensor)); });
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

// Element types keep their size: what a payload's bytes are computed with is what its memory has.

TEST(ElementType, EachIsTheOneOfThatNameAndSize) {
  const std::vector<std::pair<DType, c10::ScalarType>> pairs = {
      {DType::f32, at::kFloat},     {DType::f64, at::kDouble}, {DType::f16, at::kHalf},
      {DType::bf16, at::kBFloat16}, {DType::i32, at::kInt},    {DType::i64, at::kLong},
      {DType::u8, at::kByte}};
  EXPECT_EQ(pairs.size(), kDTypeNames.size());
  for (const auto& [ours, theirs] : pairs) {
    EXPECT_EQ(scalar_type(ours), theirs) << name_of(ours);
    EXPECT_EQ(dtype_of(theirs), ours) << name_of(ours);
    EXPECT_EQ(static_cast<std::int64_t>(c10::elementSize(theirs)), size_of(ours)) << name_of(ours);
  }
}

}  // namespace
}  // namespace linerate::torch_adapter
