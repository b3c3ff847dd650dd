// One maker per network; the catalogue lists them.
#pragma once

#include "linerate/models/request.hpp"

namespace linerate::models {

Description make_mlp(const Request&);
Description make_lenet(const Request&);
Description make_resnet18(const Request&);
Description make_resnet50(const Request&);
Description make_resnet101(const Request&);
Description make_resnet152(const Request&);
Description make_vgg16(const Request&);
Description make_densenet201(const Request&);
Description make_inception_v4(const Request&);
Description make_bert_base(const Request&);
Description make_bert_large(const Request&);
Description make_gpt_small(const Request&);

}  // namespace linerate::models
