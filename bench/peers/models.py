"""The bench's networks for 3x32x32 images and ten classes, as torchvision writes them; parameters in the order of
linerate's zoo."""
from collections import OrderedDict

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
            self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))

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
            blocks = [Block(inputs if i == 0 else width, width, 2 if stage > 1 and i == 0 else 1) for i in range(2)]
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
            layers += [nn.Conv2d(inputs, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    head = nn.Sequential(nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Linear(512, 10))
    return nn.Sequential(OrderedDict(features=nn.Sequential(*layers), flatten=nn.Flatten(), classifier=head))


def build(name):
    return {"vgg16": vgg16, "resnet18": ResNet18}[name]()
