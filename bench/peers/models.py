"""The benches' networks and their batches. Those for 3x32x32 images and ten classes are as
torchvision writes them, parameters in the order of linerate's zoo; so are ResNet-50 and VGG-16 for
ImageNet, without torchvision, which is not everywhere."""
import torch
import torch.nn as nn


def normed(inputs, outputs, size, stride=1):
    """A convolution without bias and its batch norm."""
    return (nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
            nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """A residual: normed convolutions with a ReLU between each two, next to what comes in."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.path = nn.Sequential(*self.layers(inputs, width, stride))
        outputs = self.WIDENS * width
        self.downsample = (nn.Sequential(*normed(inputs, outputs, 1, stride))
                           if stride != 1 or inputs != outputs else None)

    def forward(self, x):
        return self.relu(self.path(x) + (x if self.downsample is None else self.downsample(x)))


class Basic(Block):
    WIDENS = 1

    def layers(self, inputs, width, stride):
        return (*normed(inputs, width, 3, stride), self.relu, *normed(width, width, 3))


class Bottleneck(Block):
    WIDENS = 4

    def layers(self, inputs, width, stride):
        return (*normed(inputs, width, 1), self.relu, *normed(width, width, 3, stride), self.relu,
                *normed(width, 4 * width, 1))


def residual(stem, block, counts, classes):
    """Four stages of blocks after the stem, each twice as wide as the one before."""
    layers, inputs = list(stem), 64
    for stage, count in enumerate(counts):
        for i in range(count):
            layers.append(block(inputs, 64 << stage, 2 if stage and i == 0 else 1))
            inputs = block.WIDENS * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet18():
    """Stem 3x3 of stride 1 without pooling."""
    return residual((*normed(3, 64, 3), nn.ReLU(inplace=True)), Basic, (2, 2, 2, 2), 10)


def resnet50():
    """For 3x224x224 images and a thousand classes: 25 557 032 parameters."""
    return residual((*normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
                    Bottleneck, (3, 4, 6, 3), 1000)


def vgg16_with(head, has_norms):
    layers, inputs = [], 3
    for count, width in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, 1, 1),
                       *[nn.BatchNorm2d(width)] * has_norms, nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), *head())


def vgg16():
    """With batch norm; head Linear 512-512-10."""
    return vgg16_with(lambda: (nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 10)),
                      has_norms=True)


def vgg16_imagenet():
    """For 3x224x224 images and a thousand classes, without batch norm: 138 357 544 parameters. No
    dropout: ranks and contenders draw alike."""
    return vgg16_with(lambda: (nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True),
                               nn.Linear(4096, 4096), nn.ReLU(inplace=True),
                               nn.Linear(4096, 1000)), has_norms=False)


class LanguageModel(nn.Module):
    """Transformer blocks over `places` tokens, each to predict one: from those before it if
    `causal`."""

    def __init__(self, words, width, layers, heads, places, causal):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.zeros(places, width))
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True,
                                           norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)
        mask = nn.Transformer.generate_square_subsequent_mask(places) if causal else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens) + self.places, mask=self.mask,
                                     is_causal=self.mask is not None)).flatten(0, 1)


def gpt():
    """4 layers of width 256 over sequences of 64 tokens: 3.7 million parameters."""
    return LanguageModel(1024, 256, 4, 4, 64, True)


def bert():
    """As large as BERT-base, over sequences of 128 tokens."""
    return LanguageModel(30522, 768, 12, 12, 128, False)


def tiny():
    """For tests: a convolution and two linear layers over 3x8x8 images, 18 thousand parameters."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 128),
                         nn.ReLU(), nn.Linear(128, 10))


def matrix():
    """A matrix of 25 MB, one bucket to DDP, and next to no computation: a step is the exchange, and
    a small difference can be told."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 2048), nn.ReLU(inplace=True),
                         nn.Linear(2048, 10))


MODELS = {"vgg16": vgg16, "resnet18": resnet18, "resnet50": resnet50, "vgg16-imagenet":
              vgg16_imagenet, "gpt": gpt, "bert": bert, "matrix": matrix, "tiny": tiny}
# width and classes, else (32, 10)
IMAGES = {"resnet50": (224, 1000), "vgg16-imagenet": (224, 1000), "tiny": (8, 10)}


def build(name):
    return MODELS[name]()


def batch_of(name, size, rank):
    """Inputs and labels of a rank, always the same ones."""
    g = torch.Generator().manual_seed(rank)
    if name in ("gpt", "bert"):
        words, places = (1024, 64) if name == "gpt" else (30522, 128)
        tokens = torch.randint(words, (size, places + 1), generator=g)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    width, classes = IMAGES.get(name, (32, 10))
    return (torch.randn(size, 3, width, width, generator=g),
            torch.randint(classes, (size,), generator=g))
