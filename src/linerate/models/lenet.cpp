// LeNet-5 (LeCun et al. 1998) as it is trained today: full connections between the maps, ReLU, max
// pooling; 61,706 parameters for 1x28x28 (padded by 2) and ten classes. The MLP is here too: both
// are small and without batch norm.
#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

namespace linerate::models {

Description make_mlp(const Request& r) {
  Builder b("mlp", r.input);
  int x = b.flatten(b.input());
  x = b.relu(b.linear("fc1", x, 512));
  x = b.relu(b.linear("fc2", x, 256));
  b.linear("fc3", x, r.classes);
  return std::move(b).finish(Initialisation::he);
}

Description make_lenet(const Request& r) {
  Builder b("lenet", r.input);
  // The original takes 32x32 and pads nothing; 28x28 data is padded to that.
  const Window first = r.input.size() == 3 && r.input[1] < 32 ? same(5) : valid(5);
  int x = b.max_pool(b.relu(b.conv2d("conv1", b.input(), 6, first, true)), valid(2, 2));
  x = b.max_pool(b.relu(b.conv2d("conv2", x, 16, valid(5), true)), valid(2, 2));
  x = b.relu(b.linear("fc1", b.flatten(x), 120));
  x = b.relu(b.linear("fc2", x, 84));
  b.linear("fc3", x, r.classes);
  return std::move(b).finish(Initialisation::he);
}

}  // namespace linerate::models
