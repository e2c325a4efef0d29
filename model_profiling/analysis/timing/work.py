"""The record of an operator's work: the matrix product it is, and the bytes it reads and writes."""

from typing import Annotated

import msgspec

# More than this no program has of anything; a file with more was not measured.
Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
BITS = {
    **{"fp32": 32, "fp16": 16, "bf16": 16, "pfp32": 32, "float64": 64, "bool": 8},
    **{"int8": 8, "uint8": 8, "int16": 16, "int32": 32, "int64": 64},
    **{"qint8": 8, "quint8": 8, "qint32": 32, "qcint8": 8, "qcint32": 32, "qdint8": 8, "qpint8": 8},
    **{"qcint4": 4, "qbint4": 4},
}
# ONNX Runtime's names of types, where they are others.
ONNX_ELEMENTS = {"float": "fp32", "float16": "fp16", "bfloat16": "bf16", "double": "float64"}


class Product(msgspec.Struct, frozen=True):
    """`count` products of an m x k matrix with a k x n one: groups of a convolution, batches of a multiplication."""

    m: Size
    n: Size
    k: Size
    count: Size = 1

    @property
    def multiply_accumulates(self) -> int:
        return self.m * self.n * self.k * self.count


class Work(msgspec.Struct, frozen=True):
    """What an operator has to do. `product` is None for what multiplies no matrices.

    `element` is the type it computes in or moves. Where the CPU cannot compute in what the program has, that is a wider
    one, and `program_element` is the program's.
    `inner` are the sizes of inner loops where the rate depends on them: the row of a softmax, the window of a pooling.
    """

    element: str
    weight_bytes: Size
    read_bytes: Size
    written_bytes: Size
    product: Product | None = None
    multiply_accumulates: Size = 0
    program_element: str = ""
    inner: tuple[Size, ...] = ()

    @property
    def bytes(self) -> int:
        """All that has to cross between memory and the processor at least once."""
        return self.weight_bytes + self.read_bytes + self.written_bytes

    @property
    def size(self) -> str:
        """`16 KiB`, or `8 x 64 by 64 x 32` of a matrix product; of several, `4 of 8 x 64 by 64 x 32`."""
        product = self.product
        if product is None:
            return f"{self.bytes / 1024:.0f} KiB"
        several = f"{product.count} of " if product.count > 1 else ""
        return f"{several}{product.m} x {product.k} by {product.k} x {product.n}"

    @property
    def elements(self) -> float:
        """The numbers that are read and written, weights left out; those of another type are counted by their size."""
        return 8 * (self.read_bytes + self.written_bytes) / BITS.get(self.element, 8)

    @property
    def intensity(self) -> float | None:
        """Operations per byte, two to a multiply-accumulate; None where nothing is multiplied."""
        return 2 * self.multiply_accumulates / self.bytes if self.multiply_accumulates and self.bytes else None
