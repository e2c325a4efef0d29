"""Attention and products of two computed tensors as batches of matrix products, without the copies around them.

PyTorch writes `a @ b` of more than two dimensions as expand, view, bmm and view, and XNNPACK takes no expand although
these change nothing. It takes no product of two computed matrices (`mm`), but a batch of one such product.
`scaled_dot_product_attention` becomes 20 operators, half of them for rows of the mask that allow nothing; in fp16 it is
computed in fp32. Without such rows it is two products and a softmax, here in the dtype of the model. Heads that share
keys and values are rows of one product, so nothing is repeated for them.
"""

import math
from typing import Any

import torch
from torch.export import ExportedProgram

from model_profiling.export.rewrites.graph import arguments, calls, constant, known_value, number, reshaped, step

aten = torch.ops.aten
ATTENTION = aten.scaled_dot_product_attention.default
PRODUCTS = (aten.matmul.default, aten.mm.default)


def find(program: ExportedProgram) -> list[Any]:
    """Return the attention and the products that can be written as batches of matrix products."""
    attention = [node for node in calls(program, ATTENTION) if _attention_fits(program, node)]
    return attention + [node for node in calls(program, *PRODUCTS) if _product_fits(program, node)]


def write(program: ExportedProgram, node: Any) -> Any:
    """Write each as batches of matrix products."""
    return _attention(program, node) if node.target is ATTENTION else _product(program, node)


def _shape(node: Any) -> list[int]:
    return list(node.meta["val"].shape)


def _alike(*nodes: Any) -> bool:
    """Return whether all have one dtype and fixed sizes."""
    first, *others = [node.meta["val"] for node in nodes]
    fixed = all(isinstance(size, int) and size > 0 for value in others for size in value.shape)
    return fixed and all(value.dtype == first.dtype for value in others)


def _product_fits(program: ExportedProgram, node: Any) -> bool:
    left, right = node.args[:2]
    if not _alike(left, right):
        return False
    first, second = _shape(left), _shape(right)
    if len(second) == 2:
        # With a parameter it is a linear layer, which is delegated.
        return len(first) >= 2 and known_value(program, right) is None
    return len(first) >= 3 and len(second) >= 3 and (first[:-2] == second[:-2] or math.prod(second[:-2]) == 1)


def _product(program: ExportedProgram, node: Any) -> Any:
    left, right = node.args[:2]
    # One matrix for all: their rows are rows of one product.
    batch = math.prod(_shape(right)[:-2])
    return reshaped(program, node, _bmm(program, node, left, right, batch), _shape(node))


def _bmm(program: ExportedProgram, node: Any, left: Any, right: Any, batch: int) -> Any:
    inner, columns = _shape(right)[-2:]
    left = reshaped(program, node, left, [batch, math.prod(_shape(left)) // inner // batch, inner])
    return step(program, node, aten.bmm.default, left, reshaped(program, node, right, [batch, inner, columns]))


def _attention_fits(program: ExportedProgram, node: Any) -> bool:
    given = arguments(node)
    query, key, value = given["query"], given["key"], given["value"]
    if given.get("dropout_p") or not _alike(query, key, value) or len(_shape(query)) < 3:
        return False
    if given.get("enable_gqa"):
        q, k = _shape(query), _shape(key)
        fits = len(q) == 4 and q[0] == k[0] and q[1] % k[1] == 0
    else:
        fits = _shape(query)[:-2] == _shape(key)[:-2]
    fits = fits and _shape(key)[:-1] == _shape(value)[:-1]
    return fits and (given.get("attn_mask") is None or _mask(program, node) is not None)


def _mask(program: ExportedProgram, node: Any) -> torch.Tensor | None:
    """Return what is added to the scores; None if it is not constant, or if a row allows nothing (softmax not 0)."""
    given, dtype = arguments(node), node.meta["val"].dtype
    queries, keys = _shape(given["query"])[-2], _shape(given["key"])[-2]
    mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    if given.get("attn_mask") is not None:
        known = known_value(program, given["attn_mask"])
        if known is None or known.shape[-1] != keys:
            return None
        mask = known
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)
    allowed = bool(mask.isfinite().any(-1).all()) and not bool((mask.isnan() | (mask == math.inf)).any())
    return mask.to(dtype).contiguous() if allowed and mask.dtype == dtype else None


def _attention(program: ExportedProgram, node: Any) -> Any:
    given = arguments(node)
    query, key, value = given["query"], given["key"], given["value"]
    scale = given.get("scale")
    scale = 1 / math.sqrt(_shape(query)[-1]) if scale is None else scale
    # Before the product: fp16 scores may overflow that are small once scaled.
    query = step(program, node, aten.mul.Tensor, query, number(program, query, scale))
    turned = step(program, node, aten.transpose.int, key, -1, -2)
    batch = math.prod(_shape(key)[:-2])
    scores = _bmm(program, node, query, turned, batch)
    grouped = _shape(scores)
    if given.get("attn_mask") is not None or given.get("is_causal"):
        mask = constant(program, _mask(program, node))
        scores = reshaped(program, node, scores, [*_shape(query)[:-1], _shape(key)[-2]])
        scores = step(program, node, aten.add.Tensor, scores, mask)
    weights = step(program, node, aten.softmax.int, scores, -1)
    mixed = _bmm(program, node, reshaped(program, node, weights, grouped), value, batch)
    return reshaped(program, node, mixed, _shape(node))
