#include "linerate/models/catalogue.hpp"

#include <string>

#include "linerate/core/error.hpp"

namespace linerate::models {

const Registry<Maker>& catalogue() {
  static const Registry<Maker> models(
      "model", {
                   {"mlp",
                    {make_mlp, "1x28x28", 10},
                    "Three linear layers, 512-256-classes, with ReLU.",
                    "Rumelhart et al. 1986"},
                   {"lenet",
                    {make_lenet, "1x28x28", 10},
                    "LeNet-5 with ReLU and max pooling.",
                    "LeCun et al. 1998"},
                   {"resnet18",
                    {make_resnet18, "3x224x224", 1000},
                    "Residual network of 18 layers, basic blocks.",
                    "He et al. 2016"},
                   {"resnet50",
                    {make_resnet50, "3x224x224", 1000},
                    "Residual network of 50 layers, bottleneck blocks.",
                    "He et al. 2016"},
                   {"resnet101",
                    {make_resnet101, "3x224x224", 1000},
                    "Residual network of 101 layers, bottleneck blocks.",
                    "He et al. 2016"},
                   {"resnet152",
                    {make_resnet152, "3x224x224", 1000},
                    "Residual network of 152 layers, bottleneck blocks.",
                    "He et al. 2016"},
                   {"vgg16",
                    {make_vgg16, "3x224x224", 1000},
                    "VGG-16 (configuration D) with batch norm.",
                    "Simonyan and Zisserman 2015"},
                   {"densenet201",
                    {make_densenet201, "3x224x224", 1000},
                    "Densely connected network, growth 32, blocks 6-12-48-32.",
                    "Huang et al. 2017"},
                   {"inception-v4",
                    {make_inception_v4, "3x224x224", 1000},
                    "Inception-v4 with its own stem.",
                    "Szegedy et al. 2017"},
                   {"bert-base",
                    {make_bert_base, "128", 0},
                    "BERT base uncased: encoder and pooler, no language-model head.",
                    "Devlin et al. 2019"},
                   {"bert-large",
                    {make_bert_large, "128", 0},
                    "BERT large uncased: encoder and pooler, no language-model head.",
                    "Devlin et al. 2019"},
                   {"gpt-small",
                    {make_gpt_small, "1024", 0},
                    "GPT-2 small: 12 blocks of width 768, output tied to the embedding.",
                    "Radford et al. 2019"},
               });
  return models;
}

Description describe(std::string_view name, const Options& options) {
  const Maker& maker = catalogue().at(name);
  const Request request{options.input.value_or(parse_shape(maker.default_input)),
                        options.classes.value_or(maker.default_classes), options.variant};
  if (options.classes && *options.classes < 1)
    throw UsageError("--classes: expected at least 1, found " + std::to_string(*options.classes));
  return maker.make(request);
}

Variant parse_variant(std::string_view name) {
  if (name == "auto") return Variant::automatic;
  if (name == "published") return Variant::published;
  if (name == "small") return Variant::small;
  throw UsageError("--variant: expected auto, published or small, found \"" + std::string(name) +
                   "\"");
}

}  // namespace linerate::models
