"""The benches' networks and their batches. Those for 3x32x32 images and ten classes are as
torchvision writes them, parameters in the order of linerate's zoo; so are ResNet-50 and VGG-16 for
ImageNet, without torchvision, which is not everywhere."""
from collections import OrderedDict

import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False),
                                            nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """Stem 3x3 of stride 1 without pooling."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        inputs = 64
        for stage, width in enumerate((64, 128, 256, 512), start=1):
            blocks = [Block(inputs if i == 0 else width, width, 2 if stage > 1 and i == 0 else 1)
                      for i in range(2)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
            inputs = width
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.pool(x).flatten(1))


def vgg16():
    """With batch norm; head Linear 512-512-10."""
    layers, inputs = [], 3
    for count, width in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.BatchNorm2d(width),
                       nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = nn.Sequential(nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 10))
    return nn.Sequential(OrderedDict(features=nn.Sequential(*layers), flatten=nn.Flatten(),
                                     classifier=head))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


def resnet50():
    """For 3x224x224 images and a thousand classes: 25 557 032 parameters."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, (count, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        layers += [Bottleneck(inputs if i == 0 else 4 * width, width, 2 if stage and i == 0 else 1)
                   for i in range(count)]
        inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def vgg16_imagenet():
    """For 3x224x224 images and a thousand classes, without batch norm: 138 357 544 parameters. No
    dropout: ranks and contenders draw alike."""
    layers, inputs = [], 3
    for count, width in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True),
                         nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000))


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


MODELS = {"vgg16": vgg16, "resnet18": ResNet18, "resnet50": resnet50, "vgg16-imagenet":
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
