"""The tvm-ffi function of a library: tensors of torch, JAX and NumPy by DLPack, without copies.

    __tvm_ffi_model(in, …)            gives the output, or an array of outputs
    __tvm_ffi_model(in, …, out, …)    writes to tensors that it is given

The text is C and uses tvm-ffi's stable ABI; its functions are weak symbols, so that a program that
does not know tvm-ffi links and loads the library as before.
"""

from __future__ import annotations

from typing import Final

from plica.runtime.artefact import Artefact
from plica.runtime.c_interface import c_dims, size_count
from plica.runtime.element import ELEMENTS
from plica.runtime.interface import dims_of

SYMBOL: Final = "__tvm_ffi_"  # how tvm-ffi names functions of libraries

_ABI: Final = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef struct { int32_t kind, zero; union { int64_t number; void *pointer; }; } any;
typedef struct {
    void *data; int32_t device, device_id, rank; uint8_t code, bits; uint16_t lanes;
    int64_t *shape, *strides; uint64_t offset;
} tensor;
typedef struct managed { tensor of; void *context; void (*deleter)(struct managed *); } managed;
typedef struct { const char *data; size_t size; } bytes;
enum { NONE = 0, TENSOR_POINTER = 7, TENSOR = 70, ARRAY = 71, HEADER = 24, CPU = 1, PINNED = 3 };
#define WEAK __attribute__((weak)) extern
WEAK int TVMFFITensorFromDLPack(managed *, int32_t, int32_t, void **);
WEAK void TVMFFIErrorSetRaisedFromCStr(const char *, const char *);
WEAK int TVMFFIFunctionGetGlobal(const bytes *, void **);
WEAK int TVMFFIFunctionCall(void *, any *, int32_t, any *);
WEAK int TVMFFIObjectDecRef(void *);
typedef struct { const char *name; int32_t rank; uint8_t code, bits; } port;
"""

_CHECKS: Final = r"""
static int refuse(const char *kind, const char *name, const char *what, long long expected,
                  long long found)
{
    char text[512];
    snprintf(text, sizeof text, "%s: %s; expected %lld, found %lld.", name, what, expected, found);
    TVMFFIErrorSetRaisedFromCStr(kind, text);
    return -1;
}

static tensor *tensor_of(const any *given)
{
    if (given->kind == TENSOR_POINTER)
        return given->pointer;
    return given->kind == TENSOR ? (tensor *)((char *)given->pointer + HEADER) : 0;
}

static int fits(const tensor *of, const port *to)
{
    if (!of)
        return refuse("TypeError", to->name, "it is no tensor", TENSOR, NONE);
    if (of->device != CPU && of->device != PINNED)
        return refuse("ValueError", to->name, "it is on another device (DLPack)", CPU, of->device);
    if (of->code != to->code || of->lanes != 1)
        return refuse("TypeError", to->name, "another element type (DLPack)", to->code, of->code);
    if (of->bits != to->bits)
        return refuse("TypeError", to->name, "elements of other bits", to->bits, of->bits);
    if (of->rank != to->rank)
        return refuse("ValueError", to->name, "another rank", to->rank, of->rank);
    return 0;
}

static int has_shape(const tensor *of, const port *to, const int64_t *sizes)
{
    int64_t step = 1, empty = 0;
    for (int axis = 0; axis < to->rank; axis++) {
        empty |= !sizes[axis];
        if (of->shape[axis] != sizes[axis])
            return refuse("ValueError", to->name, "another size", sizes[axis], of->shape[axis]);
    }
    for (int axis = to->rank - 1; axis >= 0 && of->strides && !empty; axis--) {
        if (sizes[axis] > 1 && of->strides[axis] != step)
            return refuse("ValueError", to->name, "its elements are not in order of rows: a stride",
                          step, of->strides[axis]);
        step *= sizes[axis];
    }
    return 0;
}

static void *start_of(const tensor *of)
{
    return of->data ? (char *)of->data + of->offset : 0;
}

static void drop(managed *of)
{
    free(of);
}

/* A new tensor, its elements behind its sizes. */
static int make(const port *to, const int64_t *sizes, any *result)
{
    size_t head = (sizeof(managed) + to->rank * sizeof(int64_t) + 63) & ~(size_t)63;
    size_t room = to->bits / 8;
    for (int axis = 0; axis < to->rank; axis++)
        room *= sizes[axis];
    managed *made = aligned_alloc(64, (head + room + 64) & ~(size_t)63);
    if (!made) {
        TVMFFIErrorSetRaisedFromCStr("MemoryError", to->name);
        return -1;
    }
    int64_t *shape = (int64_t *)(made + 1);
    for (int axis = 0; axis < to->rank; axis++)
        shape[axis] = sizes[axis];
    *made = (managed){{(char *)made + head, CPU, 0, to->rank, to->code, to->bits, 1, shape}};
    made->deleter = drop;
    *result = (any){TENSOR, 0, {0}};
    if (TVMFFITensorFromDLPack(made, 0, 0, &result->pointer)) {
        free(made);
        return -1;
    }
    return 0;
}

static int gather(any *made, int count, any *result)
{
    const bytes name = {"ffi.Array", 9};
    void *array;
    if (TVMFFIFunctionGetGlobal(&name, &array))
        return -1;
    int code = TVMFFIFunctionCall(array, made, count, result);
    TVMFFIObjectDecRef(array);
    return code;
}
"""

_CALL: Final = r"""
__attribute__((visibility("default")))
int @SYMBOL@(void *self, const any *args, int32_t count, any *result)
{
    (void)self;
    enum { IN = @IN@, OUT = @OUT@, ALL = IN + OUT };
    if (count != IN && count != ALL)
        return refuse("TypeError", "@WORD@", "it takes inputs, or inputs and outputs", IN, count);
    tensor *given[ALL + 1];
    any made[OUT + 1];
    for (int i = 0; i < count; i++)
        if (fits(given[i] = tensor_of(args + i), ports + i))
            return -1;
@SIZES@
    const int64_t *size = sizes + 1;
    int done = 0, code = 0;
    for (int i = 0; i < ALL && !code; i++) {
        if (i >= count && !(code = make(ports + i, size, made + i - IN)))
            done++, given[i] = tensor_of(made + i - IN);
        if (!code)
            code = has_shape(given[i], ports + i, size);
        size += ports[i].rank;
    }
    if (!code) {
        int64_t wrong = @CALL@;
        if (wrong)
            code = refuse("RuntimeError", "@WORD@", "the model failed: its header says why", 0,
                          wrong);
    }
    *result = (any){NONE, 0, {0}};
    if (!code && done == 1) {
        *result = made[0];
        return 0;
    }
    if (!code && done)
        code = gather(made, done, result);
    while (done)
        TVMFFIObjectDecRef(made[--done].pointer);
    return code;
}
"""


def is_offered(artefact: Artefact) -> bool:
    """Whether DLPack has a word for every element type of the interface."""
    interface = artefact.interface
    ports = (*interface.inputs, *interface.outputs)
    return all(ELEMENTS[port.dtype].dlpack is not None for port in ports)


def ffi_text(artefact: Artefact, word: str) -> str:
    """The function of C that tvm-ffi calls."""
    interface = artefact.interface
    ports = (*interface.inputs, *interface.outputs)
    rows = [
        f'    {{"{_plain(port.name)}", {len(port.shape)}, '
        f"{ELEMENTS[port.dtype].dlpack}, {max(8, ELEMENTS[port.dtype].bits)}}},"
        for port in ports
    ]
    starts = [f"start_of(given[{at}])" for at in range(len(ports))]
    dims = dims_of(interface)
    # By names of their own: a model may be called as something is here.
    kinds = [*["int64_t"] * len(dims), *["void *"] * (len(ports) + 1)]
    declared = f'extern int64_t model({", ".join(kinds)}) __asm__("{word}");\n'
    if dims:
        declared += (
            f"extern int64_t model_sizes({', '.join(['int64_t'] * len(dims))}, int64_t *)\n"
            f'    __asm__("{word}_sizes");\n'
        )
        read = [f"given[{dim.port}]->shape[{dim.axis}]" for dim in dims]
        sizes = (
            f"    int64_t sizes[{size_count(artefact)}];\n"
            f"    int64_t bad = model_sizes({', '.join([*read, 'sizes'])});\n"
            f'    if (bad)\n        return refuse("ValueError", "{word}", '
            '"the model has no value at these sizes", 0, bad);'
        )
        starts = [*read, *starts]
        assert len(dims) == len(c_dims(artefact))
    else:
        numbers = [str(size) for port in ports for size in port.shape]
        sizes = f"    static const int64_t sizes[] = {{{', '.join(['0', *numbers])}}};"
    call = _CALL
    for key, value in {
        "SYMBOL": f"{SYMBOL}{word}", "WORD": word, "IN": str(len(interface.inputs)),
        "OUT": str(len(interface.outputs)), "SIZES": sizes,
        "CALL": f"model({', '.join([*starts, '0'])})",
    }.items():  # fmt: skip
        call = call.replace(f"@{key}@", value)
    table = "\n".join(["static const port ports[] = {", *rows, "    {0}};"])
    return f"{_ABI.lstrip()}{declared}{table}\n{_CHECKS}{call}"


def _plain(name: str) -> str:
    """A name between quotation marks of C."""
    return "".join(each if each.isascii() and each.isalnum() else "_" for each in name)
