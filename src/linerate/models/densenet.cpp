// DenseNet-201 (Huang et al. 2017), bottleneck and compression 0.5: 20,013,928 parameters at 1000
// classes. The small variant starts with a 3x3 convolution of stride 1 without pooling.
#include <array>

#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

namespace linerate::models {

Description make_densenet201(const Request& r) {
  static constexpr std::array<int, 4> blocks = {6, 12, 48, 32};
  static constexpr std::int64_t growth = 32;
  Builder b("densenet201", r.input);
  int x = b.conv2d("features.conv0", b.input(), 64, r.small() ? same(3) : same(7, 2));
  x = b.relu(b.batch_norm("features.norm0", x));
  if (!r.small()) x = b.max_pool(x, same(3, 2));
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    const std::string number = std::to_string(block + 1);
    for (int i = 1; i <= blocks[block]; ++i) {
      const std::string at =
          "features.denseblock" + number + ".denselayer" + std::to_string(i) + ".";
      int y = b.relu(b.batch_norm(at + "norm1", x));
      y = b.relu(b.batch_norm(at + "norm2", b.conv2d(at + "conv1", y, 4 * growth, valid(1))));
      x = b.concat({x, b.conv2d(at + "conv2", y, growth, same(3))});
    }
    if (block + 1 == blocks.size()) break;
    const std::string at = "features.transition" + number + ".";
    x = b.relu(b.batch_norm(at + "norm", x));
    x = b.avg_pool(b.conv2d(at + "conv", x, b.shape(x)[0] / 2, valid(1)), valid(2, 2));
  }
  x = b.relu(b.batch_norm("features.norm5", x));
  b.linear("classifier", b.flatten(b.global_avg_pool(x)), r.classes);
  return std::move(b).finish(Initialisation::he);
}

}  // namespace linerate::models
