"""What does not fit: for each reason the code, the operator, types of arguments and attributes."""

from __future__ import annotations

from typing import Any, Final

from plica.ir.type.term import TensorType, TupleType, tensor


def f32(*shape: Any) -> TensorType:
    """The type of a tensor of f32."""
    return tensor(shape, "f32")


REFUSED: Final[dict[str, tuple[str, str, tuple[Any, ...], dict[str, Any]]]] = {
    "not a tensor": ("type-conflict", "exp", (TupleType(()),), {}),
    "too few": ("wrong-arity", "add", (f32(2),), {}),
    "none at all": ("wrong-arity", "concat", (), {}),
    "two dtypes": ("dtype-conflict", "add", (f32(2), tensor((2,), "f64")), {}),
    "float wanted": ("dtype-conflict", "exp", (tensor((2,), "i32"),), {}),
    "mean of integers": ("dtype-conflict", "mean", (tensor((2,), "i32"),), {}),
    "bools do not add": ("dtype-conflict", "add", (tensor((2,), "bool"),) * 2, {}),
    "bools wanted": ("dtype-conflict", "logical_and", (f32(2), f32(2)), {}),
    "bits of floats": ("dtype-conflict", "bitwise_and", (f32(2), f32(2)), {}),
    "broadcast": ("shape-conflict", "add", (f32(2), f32(3)), {}),
    "broadcast symbols": ("shape-conflict", "add", (f32("n"), f32("m")), {}),
    "symbol and number": ("shape-conflict", "add", (f32("n"), f32(3)), {}),
    "clip bound": ("bad-attribute", "clip", (tensor((2,), "u8"),), {"min": -1}),
    "clip fraction": ("bad-attribute", "clip", (tensor((2,), "i8"),), {"min": 0.5}),
    "no such axis": ("bad-attribute", "sum", (f32(2),), {"axis": 1}),
    "an axis twice": ("bad-attribute", "sum", (f32(2, 3),), {"axis": (0, -2)}),
    "max of nothing": ("shape-conflict", "max", (f32(0, 2),), {"axis": 0}),
    "min of nothing": ("shape-conflict", "min", (f32(0, 2),), {"axis": 0}),
    "argmax of nothing": ("shape-conflict", "argmax", (f32(0, 2),), {"axis": 0}),
    "three parts": ("shape-conflict", "dft", (f32(3, 4, 1),), {}),
    "open length": ("shape-conflict", "dft", (f32(1, "n", 1),), {}),
    "too many bins": ("bad-attribute", "dft", (f32(1, 4, 1),), {"bins": 5}),
    "reshape count": ("shape-conflict", "reshape", (f32(2, 3),), {"shape": (4,)}),
    "reshape rest": ("shape-conflict", "reshape", (f32(2, 3),), {"shape": (4, -1)}),
    "reshape of nothing": ("shape-conflict", "reshape", (f32(0),), {"shape": (0, -1)}),
    "reshape symbols": ("shape-conflict", "reshape", (f32("n"),), {"shape": ("m",)}),
    "flatten axis": ("bad-attribute", "nn.flatten", (f32(2),), {"axis": 3}),
    "no permutation": ("bad-attribute", "transpose", (f32(2, 3),), {"axes": (0, 0)}),
    "moveaxis": ("bad-attribute", "moveaxis", (f32(2, 3),), {"source": 0, "destination": (0, 1)}),
    "squeeze open": ("shape-conflict", "squeeze", (f32("n", 1),), {"axis": None}),
    "squeeze": ("shape-conflict", "squeeze", (f32(2, 3),), {"axis": 0}),
    "broadcast_to": ("shape-conflict", "broadcast_to", (f32(2),), {"shape": (3,)}),
    "broadcast_to less": ("shape-conflict", "broadcast_to", (f32(2, 2),), {"shape": (2,)}),
    "roll": ("bad-attribute", "roll", (f32(2),), {"shift": (1, 2), "axis": 0}),
    "concat ranks": ("shape-conflict", "concat", (f32(2), f32(2, 2)), {}),
    "concat sizes": ("shape-conflict", "concat", (f32(2, 3), f32(2, 4)), {}),
    "stack": ("shape-conflict", "stack", (f32(2), f32(3)), {}),
    "split": ("shape-conflict", "split", (f32(5),), {"indices_or_sections": 2}),
    "split cuts": ("shape-conflict", "split", (f32(5),), {"indices_or_sections": (3, 2)}),
    "slice counts": ("bad-attribute", "slice", (f32(5),), {"starts": 0, "stops": (1, 2)}),
    "slice step": ("bad-attribute", "slice", (f32(5),), {"starts": 0, "stops": 1, "steps": 0}),
    "slice axes": (
        "bad-attribute", "slice", (f32(5),), {"starts": (0, 0), "stops": (1, 1), "axes": (0, 0)}
    ),
    "diagonal axes": ("bad-attribute", "diagonal", (f32(2, 2),), {"axis2": 0}),
    "diagonal rank": ("shape-conflict", "diagonal", (f32(2),), {}),
    "tril": ("shape-conflict", "tril", (f32(2),), {}),
    "pad pairs": ("bad-attribute", "pad", (f32(2),), {"pad_width": ((1, 1), (1, 1))}),
    "pad nothing": ("shape-conflict", "pad", (f32(0),), {"pad_width": 1, "mode": "edge"}),
    "blocks rank": ("shape-conflict", "nn.depth_to_space", (f32(4),), {"block": 2}),
    "blocks": ("shape-conflict", "nn.depth_to_space", (f32(1, 3, 2, 2),), {"block": 2}),
    "where": ("dtype-conflict", "where", (f32(2), f32(2), f32(2)), {}),
    "take by floats": ("dtype-conflict", "take", (f32(2), f32(2)), {}),
    "take_along_axis rank": (
        "shape-conflict", "take_along_axis", (f32(2), tensor((2, 2), "i64")), {}
    ),
    "take_along_axis size": (
        "shape-conflict", "take_along_axis", (f32(2, 2), tensor((3, 2), "i64")), {}
    ),
    "gather_nd": ("shape-conflict", "gather_nd", (f32(2), tensor((1, 2), "i64")), {}),
    "one_hot value": (
        "bad-attribute", "one_hot", (tensor((2,), "i64"),), {"depth": 2, "on": 300, "dtype": "i8"}
    ),
    "full value": ("bad-attribute", "full", (), {"shape": 2, "value": 0.5, "dtype": "i8"}),
    "iota of bools": ("bad-attribute", "iota", (), {"shape": 2, "dtype": "bool"}),
    "arange": ("bad-attribute", "arange", (), {"start": 0, "stop": 3, "step": 0}),
    "matmul": ("shape-conflict", "matmul", (f32(2, 3), f32(2, 3)), {}),
    "matmul rank": ("shape-conflict", "matmul", (f32(), f32(2)), {}),
    "dense": ("shape-conflict", "nn.dense", (f32(2, 3), f32(4, 2)), {}),
    "batch_matmul": ("shape-conflict", "nn.batch_matmul", (f32(2, 3), f32(2, 3)), {}),
    "einsum letters": ("bad-attribute", "einsum", (f32(2),), {"equation": "i->j"}),
    "einsum groups": ("bad-attribute", "einsum", (f32(2),), {"equation": "i,i->i"}),
    "einsum ranks": ("shape-conflict", "einsum", (f32(2),), {"equation": "ij->i"}),
    "einsum sizes": ("shape-conflict", "einsum", (f32(2), f32(3)), {"equation": "i,i->i"}),
    "conv rank": ("shape-conflict", "nn.conv", (f32(2, 3), f32(4, 3)), {}),
    "conv channels": ("shape-conflict", "nn.conv", (f32(1, 3, 5), f32(4, 2, 3)), {}),
    "conv groups": ("shape-conflict", "nn.conv", (f32(1, 4, 5), f32(3, 2, 3)), {"groups": 2}),
    "conv window": ("shape-conflict", "nn.conv", (f32(1, 1, 2), f32(1, 1, 3)), {}),
    "conv strides": ("bad-attribute", "nn.conv", (f32(1, 1, 5), f32(1, 1, 3)), {"strides": (1, 1)}),
    "conv_transpose": (
        "shape-conflict", "nn.conv_transpose", (f32(1, 1, 2), f32(1, 1, 1)), {"padding": 3}
    ),
    "pool rank": ("shape-conflict", "nn.max_pool", (f32(2, 2),), {"kernel": 1}),
    "pool padding": ("bad-attribute", "nn.max_pool", (f32(1, 1, 5),), {"kernel": 2, "padding": 2}),
    "pool window": ("shape-conflict", "nn.max_pool", (f32(1, 1, 2),), {"kernel": 3}),
    "global pool": ("shape-conflict", "nn.global_avg_pool", (f32(1, 1, 0),), {}),
    "adaptive pool": (
        "shape-conflict", "nn.adaptive_avg_pool", (f32(1, 1, "n"),), {"output_size": 2}
    ),
    "batch_norm": ("shape-conflict", "nn.batch_norm", (f32(1, 3), *(f32(2),) * 4), {}),
    "layer_norm": ("shape-conflict", "nn.layer_norm", (f32(1, 3), f32(2), f32(2)), {}),
    "group_norm": (
        "shape-conflict", "nn.group_norm", (f32(1, 3, 2), f32(3), f32(3)), {"groups": 2}
    ),
    "lrn": ("shape-conflict", "nn.lrn", (f32(3),), {"size": 3}),
    "prelu": ("shape-conflict", "nn.prelu", (f32(1, 3), f32(2)), {}),
    "dropout": ("bad-attribute", "nn.dropout", (f32(3),), {"rate": 1.0}),
    "sort axis": ("bad-attribute", "sort", (f32(),), {}),
    "argsort axis": ("bad-attribute", "argsort", (f32(2),), {"axis": 1}),
    "merge_runs axis": ("bad-attribute", "merge_runs", (f32(),), {"width": 1}),
    "merge_planes axis": ("bad-attribute", "merge_planes", (f32(3),), {"width": 1}),
    "first_places axis": ("bad-attribute", "first_places", (f32(),), {"k": 1}),
    "first_places count": ("shape-conflict", "first_places", (f32(2),), {"k": 3}),
    "first_places of none": ("shape-conflict", "first_places", (f32(2),), {"k": 0}),
    "topk count": ("shape-conflict", "topk", (f32(2),), {"k": 3}),
    "searchsorted rank": ("shape-conflict", "searchsorted", (f32(2, 3), f32(2)), {}),
    "searchsorted rows": ("shape-conflict", "searchsorted", (f32(2, 3), f32(3, 3)), {}),
    "searchsorted dtypes": ("dtype-conflict", "searchsorted", (f32(3), tensor((3,), "i32")), {}),
    "scatter_elements by floats": ("dtype-conflict", "scatter_elements", (f32(2),) * 3, {}),
    "scatter_elements of bools": (
        "dtype-conflict", "scatter_elements",
        (tensor((2,), "bool"), tensor((2,), "i64"), tensor((2,), "bool")), {"reduction": "add"},
    ),
    "scatter_elements rank": (
        "shape-conflict", "scatter_elements", (f32(2), tensor((2, 2), "i64"), f32(2, 2)), {}
    ),
    "scatter_elements updates": (
        "shape-conflict", "scatter_elements", (f32(2), tensor((2,), "i64"), f32(3)), {}
    ),
    "scatter_elements size": (
        "shape-conflict", "scatter_elements", (f32(2, 2), tensor((2, 3), "i64"), f32(2, 3)), {}
    ),
    "scatter_nd depth": (
        "shape-conflict", "scatter_nd", (f32(2), tensor((1, 2), "i64"), f32(1)), {}
    ),
    "scatter_nd updates": (
        "shape-conflict", "scatter_nd", (f32(2, 3), tensor((1, 1), "i64"), f32(1, 2)), {}
    ),
    "sparse_to_dense rows": (
        "shape-conflict", "sparse_to_dense", (tensor((2, 2), "i64"), f32(2)), {"shape": 4}
    ),
    "sparse_to_dense count": (
        "shape-conflict", "sparse_to_dense", (tensor((3, 1), "i64"), f32(2)), {"shape": 4}
    ),
    "strided_set value": (
        "shape-conflict", "strided_set", (f32(5), f32(3)), {"starts": 0, "stops": 2}
    ),
    "strided_set slice": (
        "bad-attribute", "strided_set", (f32(5), f32(3)), {"starts": 0, "stops": 2, "steps": 0}
    ),
    "matrix_set_diag": ("shape-conflict", "matrix_set_diag", (f32(2, 3), f32(3)), {}),
    "matrix_set_diag open": ("shape-conflict", "matrix_set_diag", (f32("n", 3), f32(3)), {}),
    "dilate strides": ("bad-attribute", "nn.dilate", (f32(2, 3),), {"strides": (1, 2, 3)}),
    "dilate value": (
        "bad-attribute", "nn.dilate", (tensor((2,), "u8"),), {"strides": 2, "value": -1}
    ),
    "sparse_dense rank": (
        "shape-conflict", "nn.sparse_dense",
        (f32(2), f32(3), tensor((3,), "i64"), tensor((2,), "i64")), {},
    ),
    "sparse_dense count": (
        "shape-conflict", "nn.sparse_dense",
        (f32(2, 2), f32(3), tensor((4,), "i64"), tensor((2,), "i64")), {},
    ),
    "sparse_dense starts": (
        "shape-conflict", "nn.sparse_dense",
        (f32(2, 2), f32(3), tensor((3,), "i64"), tensor((0,), "i64")), {},
    ),
    "codes past the axes": ("shape-conflict", "reshape_codes", (f32(2),), {"codes": (0, 0)}),
    "codes unknown": ("bad-attribute", "reshape_codes", (f32(2),), {"codes": (-5,)}),
    "codes of parts": ("shape-conflict", "reshape_codes", (f32(5),), {"codes": (-4, 2, -1)}),
    "layout word": (
        "bad-layout", "layout_transform", (f32(2, 3),), {"source": "NC", "target": "NX"}
    ),
    "layout rank": (
        "shape-conflict", "layout_transform", (f32(2),), {"source": "NC", "target": "CN"}
    ),
    "layout block": (
        "shape-conflict", "layout_transform", (f32(2, 3),), {"source": "NC", "target": "NC2c"}
    ),
    "layout inner": (
        "shape-conflict", "layout_transform", (f32(2, 3, 4),), {"source": "NC2c", "target": "NC"}
    ),
    "window axes": ("bad-attribute", "sliding_window", (f32(3),), {"axis": 0, "window": (1, 1)}),
    "window size": ("shape-conflict", "sliding_window", (f32(3),), {"axis": 0, "window": 4}),
    "meshgrid rank": ("shape-conflict", "meshgrid", (f32(2, 2),), {}),
    "unravel_index dtype": ("dtype-conflict", "unravel_index", (f32(2),), {"shape": (2,)}),
    "unravel_index shape": (
        "bad-attribute", "unravel_index", (tensor((2,), "i64"),), {"shape": ()}
    ),
    "adv_index alone": ("wrong-arity", "adv_index", (f32(2),), {}),
    "adv_index by floats": ("dtype-conflict", "adv_index", (f32(2), f32(2)), {}),
    "sequence axes": (
        "bad-attribute", "reverse_sequence", (f32(2, 3), tensor((2,), "i64")), {"axis": 0}
    ),
    "sequence lengths": (
        "shape-conflict", "sequence_mask", (f32(2, 3), tensor((3,), "i64")), {}
    ),
    "nll_loss classes": (
        "shape-conflict", "nn.nll_loss", (f32(2, 3), tensor((2,), "i64"), f32(2)), {}
    ),
    "nll_loss target": (
        "shape-conflict", "nn.nll_loss", (f32(2, 3), tensor((3,), "i64"), f32(3)), {}
    ),
    "nll_loss of floats": ("dtype-conflict", "nn.nll_loss", (f32(2, 3), f32(2), f32(3)), {}),
    "cross_entropy target": (
        "shape-conflict", "nn.cross_entropy", (f32(2, 3), f32(2), f32(3)), {}
    ),
    "deformable offsets": (
        "shape-conflict", "nn.deformable_conv2d",
        (f32(1, 2, 3, 3), f32(1, 3, 3, 3), f32(1, 1, 3, 3), f32(1, 2, 1, 1)), {},
    ),
    "deformable mask": (
        "shape-conflict", "nn.deformable_conv2d",
        (f32(1, 2, 3, 3), f32(1, 2, 3, 3), f32(1, 2, 3, 3), f32(1, 2, 1, 1)), {},
    ),
    "deformable size": (
        "shape-conflict", "nn.deformable_conv2d",
        (f32(1, 2, 3, 3), f32(1, 2, 2, 3), f32(1, 1, 2, 3), f32(1, 2, 1, 1)), {},
    ),
    "correlation window": (
        "bad-attribute", "nn.correlation", (f32(1, 1, 9, 9),) * 2, {"kernel": 2}
    ),
    "correlation room": (
        "shape-conflict", "nn.correlation", (f32(1, 1, 2, 2),) * 2, {"max_displacement": 1}
    ),
    "roi_align boxes": (
        "shape-conflict", "nn.roi_align", (f32(1, 1, 2, 2), f32(3, 5), tensor((3,), "i64")),
        {"size": (1, 1)},
    ),
    "roi_align greatest": (
        "bad-attribute", "nn.roi_align", (f32(1, 1, 2, 2), f32(3, 4), tensor((3,), "i64")),
        {"size": (2, 2), "samples": 0, "mode": "max"},
    ),
    "roi_align open": (
        "shape-conflict", "nn.roi_align", (f32(1, 1, "n", 2), f32(3, 4), tensor((3,), "i64")),
        {"size": (2, 2), "samples": 0},
    ),
    "roi_align batch": (
        "shape-conflict", "nn.roi_align", (f32(1, 1, 2, 2), f32(3, 4), tensor((2,), "i64")),
        {"size": (1, 1)},
    ),
    "bitserial bits": (
        "bad-attribute", "nn.bitserial_dense", (tensor((1, 2), "u8"),) * 2, {"weight_bits": 9}
    ),
    "bitserial shapes": (
        "shape-conflict", "nn.bitserial_dense", (tensor((1, 2), "u8"), tensor((1, 3), "u8")), {}
    ),
    "bitserial of floats": ("dtype-conflict", "nn.bitserial_dense", (f32(1, 2),) * 2, {}),
    "packed bits": (
        "bad-attribute", "nn.packed_dense",
        (f32(1, 8), tensor((1, 1), "i32"), f32(1, 1), f32(1, 1)), {"bits": 3},
    ),
    "packed bytes": (
        "dtype-conflict", "nn.packed_dense",
        (f32(1, 8), tensor((1, 4), "u8"), f32(1, 1), f32(1, 1)), {},
    ),
    "packed points": (
        "dtype-conflict", "nn.packed_dense",
        (tensor((1, 8), "f16"), tensor((1, 1), "i32"), tensor((1, 1), "f16"), f32(1, 1)), {},
    ),
    "packed groups": (
        "shape-conflict", "nn.packed_dense",
        (f32(1, 8), tensor((1, 1), "i32"), f32(1, 2), f32(1, 2)), {},
    ),
    "packed words": (
        "shape-conflict", "nn.packed_dense",
        (f32(1, 8), tensor((1, 2), "i32"), f32(1, 1), f32(1, 1)), {},
    ),
    **{
        f"bit_field {name}": (code, "bit_field", (tensor((2, 9), "u8"),), {"block": 3, **how})
        for name, code, how in (
            ("strides", "bad-attribute", {"at": 0, "width": 4, "extents": (2,), "strides": (4, 8)}),
            ("width", "bad-attribute", {"at": 0, "width": 5, "extents": (2,), "strides": (5,)}),
            ("block", "bad-attribute", {"at": 8, "width": 8, "extents": (3,), "strides": (8,)}),
            ("bytes", "shape-conflict",
             {"at": 0, "width": 8, "extents": (2,), "strides": (8,), "block": 4}),
        )
    },
    "bits_as i32": ("bad-attribute", "bits_as", (tensor((2,), "u8"),), {"dtype": "i32"}),
    "bits_of f16": ("dtype-conflict", "bits_of", (tensor((2,), "f16"),), {}),
    "space_to_batch blocks": ("shape-conflict", "nn.space_to_batch", (f32(1, 3),), {"block": 2}),
    "space_to_batch sides": (
        "bad-attribute", "nn.space_to_batch", (f32(1, 4),), {"block": 2, "sides": ((0, 0),) * 2}
    ),
    "batch_to_space batch": ("shape-conflict", "nn.batch_to_space", (f32(3, 3),), {"block": 2}),
    "batch_to_space sides": (
        "shape-conflict", "nn.batch_to_space", (f32(2, 1),), {"block": 2, "sides": ((2, 1),)}
    ),
}  # fmt: skip
