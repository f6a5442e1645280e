"""The operations of StableHLO's specification, and programs of one operation each."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

OPERATIONS: Final = """
    abs add after_all all_gather all_reduce all_to_all and async_done async_start atan2
    batch_norm_grad batch_norm_inference batch_norm_training bitcast_convert broadcast_in_dim
    case cbrt ceil cholesky clamp collective_broadcast collective_permute compare complex
    composite concatenate constant convert convolution cosine count_leading_zeros custom_call
    divide dot_general dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota
    dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice exponential
    exponential_minus_one fft floor gather get_dimension_size get_tuple_element if imag infeed
    iota is_finite log log_plus_one logistic map maximum minimum multiply negate not
    optimization_barrier or outfeed pad partition_id popcnt power real recv reduce
    reduce_precision reduce_scatter reduce_window remainder replica_id reshape reverse rng
    rng_bit_generator round_nearest_afz round_nearest_even rsqrt scatter select
    select_and_scatter send shift_left shift_right_arithmetic shift_right_logical sign sine
    slice sort sqrt subtract tan tanh transpose triangular_solve tuple uniform_dequantize
    uniform_quantize while xor
""".split()  # noqa: SIM905  # a list of words

FLOAT: Final = "tensor<3x4xf32>"
WHOLE: Final = "tensor<3x4xi32>"
BOOL: Final = "tensor<3x4xi1>"


def program(body: str, inputs: str, output: str) -> str:
    """A module whose main function has inputs %a, %b, … and returns %r."""
    types = [each.strip() for each in re.split(r";", inputs) if each.strip()]
    params = ", ".join(f"%{'abcdefgh'[at]}: {of}" for at, of in enumerate(types))
    return f"func.func @main({params}) -> {output} {{\n{body}\nreturn %r : {output}\n}}\n"


def unary(name: str, of: str, to: str = "") -> str:
    sign = f"{of}" if not to else f"({of}) -> {to}"
    return program(f"%r = stablehlo.{name} %a : {sign}", of, to or of)


def binary(name: str, of: str) -> str:
    return program(f"%r = stablehlo.{name} %a, %b : {of}", f"{of}; {of}", of)


SUM: Final = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %s = stablehlo.add %p, %q : tensor<f32>
  stablehlo.return %s : tensor<f32> })"""
MOST: Final = SUM.replace("stablehlo.add", "stablehlo.maximum")
GREATER: Final = """({ ^bb0(%p: tensor<f32>, %q: tensor<f32>):
  %s = stablehlo.compare GE, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %s : tensor<i1> }"""
ONE_GROUP: Final = "replica_groups = dense<0> : tensor<1x1xi64>"
ZERO: Final = "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"

PROGRAMS: Final[dict[str, list[str]]] = {
    **{name: [unary(name, FLOAT)] for name in (
        "cbrt", "ceil", "cosine", "exponential", "exponential_minus_one", "floor",
        "log", "log_plus_one", "logistic", "round_nearest_afz", "round_nearest_even", "rsqrt",
        "sine", "sqrt", "tan", "tanh",
    )},
    **{name: [unary(name, FLOAT), unary(name, WHOLE)] for name in ("abs", "negate", "sign")},
    **{name: [unary(name, WHOLE), unary(name, "tensor<5xui8>"), unary(name, "tensor<5xi64>")]
       for name in ("popcnt", "count_leading_zeros", "not")},
    **{name: [binary(name, FLOAT), binary(name, WHOLE)] for name in (
        "add", "subtract", "multiply", "maximum", "minimum", "divide", "remainder", "power",
    )},
    **{name: [binary(name, WHOLE), binary(name, BOOL)] for name in ("and", "or", "xor")},
    **{name: [binary(name, WHOLE), binary(name, "tensor<7xui8>")] for name in (
        "shift_left", "shift_right_arithmetic", "shift_right_logical",
    )},
    "atan2": [binary("atan2", FLOAT)],
    "is_finite": [unary("is_finite", FLOAT, BOOL)],
    "convert": [unary("convert", FLOAT, to) for to in (WHOLE, BOOL, "tensor<3x4xbf16>",
                                                       "tensor<3x4xf16>", "tensor<3x4xui8>")],
    "bitcast_convert": [unary("bitcast_convert", FLOAT, WHOLE), unary("bitcast_convert", WHOLE, FLOAT),
                        unary("bitcast_convert", "tensor<4xf64>", "tensor<4xui64>")],
    "reduce_precision": [program("%r = stablehlo.reduce_precision %a, format = e8m7 : " + FLOAT, FLOAT, FLOAT)],
    "clamp": [program(f"%r = stablehlo.clamp %a, %b, %c : (tensor<f32>, {FLOAT}, {FLOAT}) -> {FLOAT}",
                      f"tensor<f32>; {FLOAT}; {FLOAT}", FLOAT)],
    "select": [program(f"%r = stablehlo.select %a, %b, %c : {BOOL}, {FLOAT}", f"{BOOL}; {FLOAT}; {FLOAT}", FLOAT),
               program(f"%r = stablehlo.select %a, %b, %c : tensor<i1>, {FLOAT}", f"tensor<i1>; {FLOAT}; {FLOAT}", FLOAT)],
    "compare": [program(f"%r = stablehlo.compare {way}, %a, %b, {kind} : ({of}, {of}) -> {BOOL}", f"{of}; {of}", BOOL)
                for way in ("EQ", "NE", "LT", "LE", "GT", "GE")
                for kind, of in (("FLOAT", FLOAT), ("TOTALORDER", FLOAT), ("SIGNED", WHOLE), ("UNSIGNED", BOOL))],
    "constant": [program('%r = stablehlo.constant dense<"0x0000803F000000C0"> : tensor<2xf32>', "", "tensor<2xf32>"),
                 program("%r = stablehlo.constant dense<[[true, false]]> : tensor<1x2xi1>", "", "tensor<1x2xi1>")],
    "iota": [program(f"%r = stablehlo.iota dim = {at} : {of}", "", of) for at in (0, 1) for of in (FLOAT, WHOLE, "tensor<3x4xui8>")],
    "dynamic_iota": [program("%s = stablehlo.constant dense<[2, 3]> : tensor<2xi32>\n%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi32>) -> tensor<2x3xi32>", "", "tensor<2x3xi32>")],
    "broadcast_in_dim": [program(f"%r = stablehlo.broadcast_in_dim %a, dims = [2, 0] : ({FLOAT}) -> tensor<4x2x3xf32>", FLOAT, "tensor<4x2x3xf32>")],
    "dynamic_broadcast_in_dim": [program("%s = stablehlo.constant dense<[2, 3, 4]> : tensor<3xi64>\n%r = stablehlo.dynamic_broadcast_in_dim %a, %s, dims = [1, 2] : (" + FLOAT + ", tensor<3xi64>) -> tensor<2x3x4xf32>", FLOAT, "tensor<2x3x4xf32>")],
    "reshape": [program(f"%r = stablehlo.reshape %a : ({FLOAT}) -> tensor<2x6xf32>", FLOAT, "tensor<2x6xf32>")],
    "dynamic_reshape": [program(f"%s = stablehlo.constant dense<[2, 6]> : tensor<2xi64>\n%r = stablehlo.dynamic_reshape %a, %s : ({FLOAT}, tensor<2xi64>) -> tensor<2x6xf32>", FLOAT, "tensor<2x6xf32>")],
    "transpose": [program("%r = stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>", "tensor<2x3x4xf32>", "tensor<4x2x3xf32>")],
    "slice": [program(f"%r = stablehlo.slice %a [1:3, 0:4:3] : ({FLOAT}) -> tensor<2x2xf32>", FLOAT, "tensor<2x2xf32>")],
    "pad": [program(f"%r = stablehlo.pad %a, %b, low = [1, -1], high = [0, 2], interior = [2, 0] : ({FLOAT}, tensor<f32>) -> tensor<8x5xf32>", f"{FLOAT}; tensor<f32>", "tensor<8x5xf32>")],
    "dynamic_pad": [program(f"%l = stablehlo.constant dense<[1, 0]> : tensor<2xi64>\n%h = stablehlo.constant dense<[0, 2]> : tensor<2xi64>\n%i = stablehlo.constant dense<0> : tensor<2xi64>\n%r = stablehlo.dynamic_pad %a, %b, %l, %h, %i : ({FLOAT}, tensor<f32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x6xf32>", f"{FLOAT}; tensor<f32>", "tensor<4x6xf32>")],
    "concatenate": [program(f"%r = stablehlo.concatenate %a, %b, dim = 1 : ({FLOAT}, {FLOAT}) -> tensor<3x8xf32>", f"{FLOAT}; {FLOAT}", "tensor<3x8xf32>")],
    "reverse": [program(f"%r = stablehlo.reverse %a, dims = [0, 1] : {FLOAT}", FLOAT, FLOAT)],
    "get_dimension_size": [program(f"%r = stablehlo.get_dimension_size %a, dim = 1 : ({FLOAT}) -> tensor<i32>", FLOAT, "tensor<i32>")],
    "dynamic_slice": [program(f"%r = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 3] : ({FLOAT}, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>", f"{FLOAT}; tensor<i32>; tensor<i32>", "tensor<2x3xf32>")],
    "dynamic_update_slice": [program(f"%r = stablehlo.dynamic_update_slice %a, %b, %c, %d : ({FLOAT}, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> {FLOAT}", f"{FLOAT}; tensor<2x3xf32>; tensor<i32>; tensor<i32>", FLOAT)],
    "reduce": [program(f"%r = stablehlo.reduce(%a init: %b) applies stablehlo.{name} across dimensions = [0] : ({FLOAT}, tensor<f32>) -> tensor<4xf32>", f"{FLOAT}; tensor<f32>", "tensor<4xf32>") for name in ("add", "maximum", "minimum", "multiply")]
    + [program(f'%r = "stablehlo.reduce"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> {SUM} : ({FLOAT}, tensor<f32>) -> tensor<f32>', f"{FLOAT}; tensor<f32>", "tensor<f32>"),
       program(f"%r = stablehlo.reduce(%a init: %b) applies stablehlo.xor across dimensions = [1] : ({WHOLE}, tensor<i32>) -> tensor<3xi32>", f"{WHOLE}; tensor<i32>", "tensor<3xi32>")],
    "reduce_window": [program(f'%b = stablehlo.constant dense<{init}> : tensor<f32>\n%r = "stablehlo.reduce_window"(%a, %b) <{{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 2>, base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 2, 1>, padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>}}> {body} : ({FLOAT}, tensor<f32>) -> tensor<4x2xf32>', FLOAT, "tensor<4x2xf32>") for body, init in ((SUM, "0.0"), (MOST, "0xFF800000"))],
    "select_and_scatter": [program(f'%r = "stablehlo.select_and_scatter"(%a, %b, %c) <{{window_dimensions = array<i64: 2, 2>, window_strides = array<i64: 1, 2>, padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>}}> {GREATER}, {SUM[1:]} : ({FLOAT}, tensor<3x2xf32>, tensor<f32>) -> {FLOAT}', f"{FLOAT}; tensor<3x2xf32>; tensor<f32>", FLOAT)],
    "map": [program(f'%r = "stablehlo.map"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> {SUM} : ({FLOAT}, {FLOAT}) -> {FLOAT}', f"{FLOAT}; {FLOAT}", FLOAT)],
    "gather": [program('%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [1], start_index_map = [1, 0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 1, 5>}> : (tensor<3x4x5xf32>, tensor<6x2xi32>) -> tensor<2x6x5xf32>', "tensor<3x4x5xf32>; tensor<6x2xi32>", "tensor<2x6x5xf32>"),
               program('%r = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>}> : (tensor<3x4xf32>, tensor<3x1xi32>) -> tensor<3x2xf32>', "tensor<3x4xf32>; tensor<3x1xi32>", "tensor<3x2xf32>")],
    "scatter": [program(f'%r = "stablehlo.scatter"(%a, %b, %c) <{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>}}> {body} : ({FLOAT}, tensor<5x2xi32>, tensor<5x2xf32>) -> {FLOAT}', f"{FLOAT}; tensor<5x2xi32>; tensor<5x2xf32>", FLOAT) for body in (SUM, MOST)],
    "sort": [program('%r = "stablehlo.sort"(%a) <{dimension = 1 : i64, is_stable = true}> ' + GREATER.replace("GE", way) + f") : ({FLOAT}) -> {FLOAT}", FLOAT, FLOAT) for way in ("LT", "GT")],
    "dot_general": [program("%r = stablehlo.dot_general %a, %b, batching_dims = [1] x [0], contracting_dims = [0] x [2] : (tensor<3x2x4xf32>, tensor<2x5x3xf32>) -> tensor<2x4x5xf32>", "tensor<3x2x4xf32>; tensor<2x5x3xf32>", "tensor<2x4x5xf32>"),
                    program('%r = "stablehlo.dot_general"(%a, %b) <{dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>}> : (tensor<3x4xi8>, tensor<2x4xi8>) -> tensor<3x2xi32>', "tensor<3x4xi8>; tensor<2x4xi8>", "tensor<3x2xi32>")],
    "convolution": [program("%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, f, 0, 1], window = {stride = [1, 2], pad = [[1, 1], [0, 1]], lhs_dilate = [2, 1], rhs_dilate = [1, 2], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<1x4x6x4xf32>, tensor<2x2x2x6xf32>) -> tensor<1x6x8x3xf32>", "tensor<1x4x6x4xf32>; tensor<2x2x2x6xf32>", "tensor<1x6x8x3xf32>"),
                    program("%r = stablehlo.convolution(%a, %b) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {} {batch_group_count = 2 : i64, feature_group_count = 1 : i64} : (tensor<4x3x5xf32>, tensor<4x3x2xf32>) -> tensor<2x4x4xf32>", "tensor<4x3x5xf32>; tensor<4x3x2xf32>", "tensor<2x4x4xf32>")],
    "batch_norm_inference": [program('%r = "stablehlo.batch_norm_inference"(%a, %b, %c, %d, %e) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}> : (' + FLOAT + ", tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> " + FLOAT, FLOAT + "; tensor<4xf32>; tensor<4xf32>; tensor<4xf32>; tensor<4xf32>", FLOAT)],
    "batch_norm_training": [program('%r, %m, %v = "stablehlo.batch_norm_training"(%a, %b, %c) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}> : (' + FLOAT + ", tensor<4xf32>, tensor<4xf32>) -> (" + FLOAT + ", tensor<4xf32>, tensor<4xf32>)", FLOAT + "; tensor<4xf32>; tensor<4xf32>", FLOAT)],
    "batch_norm_grad": [program('%r, %m, %v = "stablehlo.batch_norm_grad"(%a, %b, %c, %d, %e) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}> : (' + FLOAT + ", tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, " + FLOAT + ") -> (" + FLOAT + ", tensor<4xf32>, tensor<4xf32>)", FLOAT + "; tensor<4xf32>; tensor<4xf32>; tensor<4xf32>; " + FLOAT, FLOAT)],
    "cholesky": [program(f'%s = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1] : ({FLOAT}, {FLOAT}) -> tensor<3x3xf32>\n%r = stablehlo.cholesky %s, lower = {lower} : tensor<3x3xf32>', FLOAT, "tensor<3x3xf32>") for lower in ("true",)],
    "triangular_solve": [program(f'%r = "stablehlo.triangular_solve"(%a, %b) <{{left_side = {left}, lower = {lower}, transpose_a = #stablehlo<transpose {turned}>, unit_diagonal = {unit}}}> : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>', "tensor<3x3xf32>; tensor<3x3xf32>", "tensor<3x3xf32>")
                         for left in ("true", "false") for lower in ("true", "false") for turned in ("NO_TRANSPOSE", "TRANSPOSE") for unit in ("true",)],
    "complex": [program("%c = stablehlo.complex %a, %b : tensor<3x4xcomplex<f32>>\n%m = stablehlo.multiply %c, %c : tensor<3x4xcomplex<f32>>\n%r = stablehlo.imag %m : (tensor<3x4xcomplex<f32>>) -> " + FLOAT, f"{FLOAT}; {FLOAT}", FLOAT)],
    "real": [program("%c = stablehlo.complex %a, %b : tensor<3x4xcomplex<f32>>\n%m = stablehlo.divide %c, %c : tensor<3x4xcomplex<f32>>\n%r = stablehlo.real %m : (tensor<3x4xcomplex<f32>>) -> " + FLOAT, f"{FLOAT}; {FLOAT}", FLOAT)],
    "imag": [program(f"%r = stablehlo.imag %a : ({FLOAT}) -> {FLOAT}", FLOAT, FLOAT)],
    "fft": [program(f"%c = stablehlo.fft %a, type = RFFT, length = [4] : ({FLOAT}) -> tensor<3x3xcomplex<f32>>\n%r = stablehlo.fft %c, type = IRFFT, length = [4] : (tensor<3x3xcomplex<f32>>) -> {FLOAT}", FLOAT, FLOAT)],
    "if": [program(f'%r = "stablehlo.if"(%a) ({{ stablehlo.return %b : {FLOAT} }}, {{ %n = stablehlo.negate %b : {FLOAT}\n stablehlo.return %n : {FLOAT} }}) : (tensor<i1>) -> {FLOAT}', f"tensor<i1>; {FLOAT}", FLOAT)],
    "case": [program(f'%r = "stablehlo.case"(%a) ({{ stablehlo.return %b : {FLOAT} }}, {{ %n = stablehlo.negate %b : {FLOAT}\n stablehlo.return %n : {FLOAT} }}) : (tensor<i32>) -> {FLOAT}', f"tensor<i32>; {FLOAT}", FLOAT)],
    "while": [program("%k = stablehlo.constant dense<1> : tensor<i32>\n%m = stablehlo.constant dense<9> : tensor<i32>\n%r = stablehlo.while(%i = %a) : tensor<i32>\ncond { %t = stablehlo.compare LT, %i, %m, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return %t : tensor<i1> }\ndo { %n = stablehlo.add %i, %k : tensor<i32>\nstablehlo.return %n : tensor<i32> }", "tensor<i32>", "tensor<i32>")],
    "optimization_barrier": [program(f"%r, %s = stablehlo.optimization_barrier %a, %b : {FLOAT}, {WHOLE}", f"{FLOAT}; {WHOLE}", FLOAT)],
    "get_tuple_element": [program(f"%t = stablehlo.tuple %a, %b : tuple<{FLOAT}, {WHOLE}>\n%r = stablehlo.get_tuple_element %t[1] : (tuple<{FLOAT}, {WHOLE}>) -> {WHOLE}", f"{FLOAT}; {WHOLE}", WHOLE)],
    "replica_id": [program("%r = stablehlo.replica_id : tensor<ui32>", "", "tensor<ui32>")],
    "partition_id": [program("%r = stablehlo.partition_id : tensor<ui32>", "", "tensor<ui32>")],
    "all_reduce": [program(f'%r = "stablehlo.all_reduce"(%a) <{{{ONE_GROUP}}}> {SUM} : ({FLOAT}) -> {FLOAT}', FLOAT, FLOAT)],
    "all_gather": [program(f'%r = "stablehlo.all_gather"(%a) <{{all_gather_dim = 0 : i64, {ONE_GROUP}}}> : ({FLOAT}) -> {FLOAT}', FLOAT, FLOAT)],
    "all_to_all": [program(f'%r = "stablehlo.all_to_all"(%a) <{{concat_dimension = 0 : i64, split_dimension = 0 : i64, split_count = 1 : i64, {ONE_GROUP}}}> : ({FLOAT}) -> {FLOAT}', FLOAT, FLOAT)],
    "reduce_scatter": [program(f'%r = "stablehlo.reduce_scatter"(%a) <{{scatter_dimension = 0 : i64, {ONE_GROUP}}}> {SUM} : ({FLOAT}) -> {FLOAT}', FLOAT, FLOAT)],
    "collective_permute": [program(f'%r = "stablehlo.collective_permute"(%a) <{{source_target_pairs = dense<0> : tensor<1x2xi64>}}> : ({FLOAT}) -> {FLOAT}', FLOAT, FLOAT)],
    "collective_broadcast": [program(f'%r = "stablehlo.collective_broadcast"(%a) <{{{ONE_GROUP}}}> : ({FLOAT}) -> {FLOAT}', FLOAT, FLOAT)],
    "after_all": [program(f"%t = stablehlo.after_all : !stablehlo.token\n%r = stablehlo.negate %a : {FLOAT}", FLOAT, FLOAT)],
    "composite": ["func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n%r = stablehlo.composite \"acme.twice\" %a {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>\nreturn %r : tensor<2xf32>\n}\nfunc.func private @twice(%a: tensor<2xf32>) -> tensor<2xf32> {\n%r = stablehlo.add %a, %a : tensor<2xf32>\nreturn %r : tensor<2xf32>\n}\n"],
    "custom_call": [program(f"%r = stablehlo.custom_call @Sharding(%a) {{mhlo.sharding = \"{{replicated}}\"}} : ({FLOAT}) -> {FLOAT}", FLOAT, FLOAT)],
    "dynamic_gather": [program('%s = stablehlo.constant dense<[1, 4]> : tensor<2xi32>\n%r = "stablehlo.dynamic_gather"(%a, %b, %s) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>}> : (' + FLOAT + ", tensor<2x1xi32>, tensor<2xi32>) -> tensor<2x4xf32>", FLOAT + "; tensor<2x1xi32>", "tensor<2x4xf32>")],
    "dynamic_conv": [program("%p = stablehlo.constant dense<[[0, 1]]> : tensor<1x2xi32>\n%r = \"stablehlo.dynamic_conv\"(%a, %b, %p) <{batch_group_count = 1 : i64, feature_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>}> : (tensor<4x3x5xf32>, tensor<4x3x2xf32>, tensor<1x2xi32>) -> tensor<4x4x5xf32>", "tensor<4x3x5xf32>; tensor<4x3x2xf32>", "tensor<4x4x5xf32>")],
}  # fmt: skip
PROGRAMS["tuple"] = PROGRAMS["get_tuple_element"]
# ruff: noqa: E501  # a program is a line


def inputs(text: str, seed: int) -> list[np.ndarray[Any, Any]]:
    """Values for the inputs of a program."""
    random = np.random.default_rng(seed)
    header = text[: text.index("->")]
    found = []
    for sizes, of in re.findall(r"%\w+: tensor<((?:\d+x)*)(\w+)>", header):
        shape = tuple(int(each) for each in sizes.split("x")[:-1])
        if of == "i1":
            found.append(random.integers(0, 2, shape).astype(bool))
        elif "i" in of:
            kind = np.dtype(of.replace("ui", "uint") if "u" in of else of.replace("i", "int"))
            low, high = (0, 9) if "u" in of else (-3, 5)
            found.append(random.integers(low, high, shape).astype(kind))
        else:
            kind = np.dtype({"f32": "float32", "f64": "float64"}[of])
            values = (
                np.round(random.standard_normal(shape) * 4) / 4
                if seed % 2
                else random.standard_normal(shape)
            )
            found.append(np.asarray(values).astype(kind))
    return found
