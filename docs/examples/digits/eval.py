"""Samples of digits that the network was not trained with, and how many of them it reads."""

from typing import Any

from net import digits


def samples() -> list[tuple[Any, int]]:
    images, labels = digits(300, 12345)
    return [(image[None], int(label)) for image, label in zip(images, labels, strict=True)]


def score(predict: Any, data: list[tuple[Any, int]]) -> float:
    """Return the part of the samples that is read right; `predict` runs a program and answers as `forward` does."""
    right = [int(predict(image)["logits"].argmax()) == label for image, label in data]
    return sum(right) / len(right)
