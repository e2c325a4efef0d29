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

from model_profiling.export.rewrites.graph import NodeRewrite, Site, known_value

aten = torch.ops.aten


def _shape(node: Any) -> list[int]:
    return list(node.meta["val"].shape)


def _alike(*nodes: Any) -> bool:
    """Return whether all have one dtype and fixed sizes."""
    first, *others = [node.meta["val"] for node in nodes]
    fixed = all(isinstance(size, int) and size > 0 for value in others for size in value.shape)
    return fixed and all(value.dtype == first.dtype for value in others)


def _product_fits(site: Site) -> bool:
    left, right = site.node.args[:2]
    if not _alike(left, right):
        return False
    first, second = _shape(left), _shape(right)
    if len(second) == 2:
        # With a parameter it is a linear layer, which is delegated.
        return len(first) >= 2 and known_value(site.program, right) is None
    return len(first) >= 3 and len(second) >= 3 and (first[:-2] == second[:-2] or math.prod(second[:-2]) == 1)


def _product(site: Site) -> Any:
    left, right = site.node.args[:2]
    # One matrix for all: their rows are rows of one product.
    batch = math.prod(_shape(right)[:-2])
    return site.reshaped(_bmm(site, left, right, batch), _shape(site.node))


def _bmm(site: Site, left: Any, right: Any, batch: int) -> Any:
    inner, columns = _shape(right)[-2:]
    left = site.reshaped(left, [batch, math.prod(_shape(left)) // inner // batch, inner])
    return site(aten.bmm.default, left, site.reshaped(right, [batch, inner, columns]))


def _attention_fits(site: Site) -> bool:
    given = site.given
    query, key, value = given["query"], given["key"], given["value"]
    if given.get("dropout_p") or not _alike(query, key, value) or len(_shape(query)) < 3:
        return False
    if given.get("enable_gqa"):
        q, k = _shape(query), _shape(key)
        fits = len(q) == 4 and q[0] == k[0] and q[1] % k[1] == 0
    else:
        fits = _shape(query)[:-2] == _shape(key)[:-2]
    fits = fits and _shape(key)[:-1] == _shape(value)[:-1]
    return fits and (given.get("attn_mask") is None or _mask(site) is not None)


def _mask(site: Site) -> torch.Tensor | None:
    """Return what is added to the scores; None if it is not constant, or if a row allows nothing (softmax not 0)."""
    given, dtype = site.given, site.value.dtype
    queries, keys = _shape(given["query"])[-2], _shape(given["key"])[-2]
    mask = torch.ones(queries, keys, dtype=torch.bool).tril()
    if given.get("attn_mask") is not None:
        known = known_value(site.program, given["attn_mask"])
        if known is None or known.shape[-1] != keys:
            return None
        mask = known
    if mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)
    allowed = bool(mask.isfinite().any(-1).all()) and not bool((mask.isnan() | (mask == math.inf)).any())
    return mask.to(dtype).contiguous() if allowed and mask.dtype == dtype else None


def _attention(site: Site) -> Any:
    given = site.given
    query, key, value = given["query"], given["key"], given["value"]
    scale = given.get("scale")
    scale = 1 / math.sqrt(_shape(query)[-1]) if scale is None else scale
    # Before the product: fp16 scores may overflow that are small once scaled.
    query = site(aten.mul.Tensor, query, site.number(query, scale))
    turned = site(aten.transpose.int, key, -1, -2)
    batch = math.prod(_shape(key)[:-2])
    scores = _bmm(site, query, turned, batch)
    grouped = _shape(scores)
    mask = _mask(site) if given.get("attn_mask") is not None or given.get("is_causal") else None
    if mask is not None:
        added = site.constant(mask)
        scores = site(aten.add.Tensor, site.reshaped(scores, [*_shape(query)[:-1], _shape(key)[-2]]), added)
    weights = site(aten.softmax.int, scores, -1)
    mixed = _bmm(site, site.reshaped(weights, grouped), value, batch)
    return site.reshaped(mixed, _shape(site.node))


REWRITES = [
    NodeRewrite([aten.scaled_dot_product_attention.default], _attention_fits, _attention),
    NodeRewrite([aten.matmul.default, aten.mm.default], _product_fits, _product),
]
