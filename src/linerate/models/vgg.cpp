// VGG-16 with batch norm (Simonyan and Zisserman 2015, configuration D): 138,365,992 parameters at
// 3x224x224. The small variant ends in Linear 512-512-classes instead of three layers of width
// 4096.
#include <algorithm>
#include <array>

#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

namespace linerate::models {

Description make_vgg16(const Request& r) {
  Builder b("vgg16", r.input);
  static constexpr std::array<std::pair<int, int>, 5> stages = {
      {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}};
  int x = b.input(), index = 0;
  for (const auto& [layers, channels] : stages) {
    for (int i = 0; i < layers; ++i, index += 3) {
      x = b.conv2d("features." + std::to_string(index), x, channels, same(3), true);
      x = b.relu(b.batch_norm("features." + std::to_string(index + 1), x));
    }
    // 28x28 shrinks to one pixel before the last pooling, which then is not needed.
    if (std::min(b.shape(x)[1], b.shape(x)[2]) > 1) x = b.max_pool(x, valid(2, 2));
    ++index;
  }
  if (r.small()) {
    x = b.flatten(b.global_avg_pool(x));
    x = b.relu(b.linear("classifier.0", x, 512));
    b.linear("classifier.2", x, r.classes);
  } else {
    x = b.flatten(b.global_avg_pool(x, 7));
    x = b.dropout(b.relu(b.linear("classifier.0", x, 4096)), 0.5);
    x = b.dropout(b.relu(b.linear("classifier.3", x, 4096)), 0.5);
    b.linear("classifier.6", x, r.classes);
  }
  return std::move(b).finish(Initialisation::he);
}

}  // namespace linerate::models
