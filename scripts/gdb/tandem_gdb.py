# SPDX-License-Identifier: Apache-2.0
# How gdb shows Tensor, Param, Buffer, Shape, Dim, DType and Device: `print x` gives dtype, sizes and
# elements. gdb loads it with an installed library where its auto-load safe-path allows; else, in gdb:
# `source .../share/tandem/gdb/tandem_gdb.py`. It reads memory only and calls nothing in the program.
import struct

import gdb
import gdb.printing

DTYPES = [("float64", 8, "<d"), ("float32", 4, "<f"), ("float16", 2, "<e"), ("bfloat16", 2, None),
          ("int64", 8, "<q"), ("int32", 4, "<i"), ("int16", 2, "<h"), ("int8", 1, "<b"),
          ("uint8", 1, "<B"), ("bool", 1, "<?")]
FLOATS = ("float32", "float16", "bfloat16")
KINDS = ["cpu", "cuda"]
SYMBOLIC = -(1 << 62)
FLAG_GRAD, FLAG_SYMBOLIC = 1, 2


def dtype_of(value):
    return DTYPES[int(value.cast(gdb.lookup_type("unsigned char")))]


def dim_text(raw):
    return str(raw) if raw >= SYMBOLIC else "?"


def sizes_of(shape):
    return [int(shape["dims_"]["_M_elems"][i]["v_"]) for i in range(int(shape["rank_"]))]


def shape_text(sizes):
    return "[" + ", ".join(dim_text(n) for n in sizes) + "]"


def device_text(device):
    kind = int(device["kind"].cast(gdb.lookup_type("unsigned char")))
    name = KINDS[kind] if kind < len(KINDS) else "device %d" % kind
    index = int(device["index"])
    return name if kind == 0 and index == 0 else "%s:%d" % (name, index)


def element(raw, dtype):
    if dtype[2] is None:  # bfloat16: the upper half of a float
        number = struct.unpack("<f", b"\0\0" + raw)[0]
    else:
        number = struct.unpack(dtype[2], raw)[0]
    value = gdb.Value(number)
    # As float a number shows no more digits than its type has.
    return value.cast(gdb.lookup_type("float")) if dtype[0] in FLOATS else value


class TensorPrinter:
    """dtype, sizes and the elements in row-major order, as many as `set print elements` says."""

    def __init__(self, value):
        self.impl = value["impl_"]["p_"]

    def undefined(self):
        return int(self.impl) == 0

    def to_string(self):
        if self.undefined():
            return "tensor(undefined)"
        impl = self.impl.dereference()
        text = "%s %s" % (dtype_of(impl["dtype"])[0], shape_text(sizes_of(impl["shape"])))
        if device_text(impl["device"]) != "cpu":
            text += " on " + device_text(impl["device"])
        if int(impl["flags"]) & FLAG_SYMBOLIC:
            text += " traced"
        if int(impl["flags"]) & FLAG_GRAD:
            text += " requires_grad"
        return text

    def children(self):
        if self.undefined():
            return
        impl = self.impl.dereference()
        if int(impl["flags"]) & FLAG_SYMBOLIC or device_text(impl["device"]) != "cpu":
            return
        dtype, sizes = dtype_of(impl["dtype"]), sizes_of(impl["shape"])
        strides = [int(impl["strides"]["v"]["_M_elems"][i]) for i in range(len(sizes))]
        data, memory = int(impl["data"]), gdb.selected_inferior()
        total = 1
        for n in sizes:
            total *= n
        for i in range(total):
            offset, left = 0, i
            for n, step in zip(reversed(sizes), reversed(strides)):
                left, at = divmod(left, n)
                offset += at * step
            raw = bytes(memory.read_memory(data + offset * dtype[1], dtype[1]))
            yield "[%d]" % i, element(raw, dtype)

    def display_hint(self):
        return "array"


def cell_parts(cell):
    """The name and the value of a cell."""
    try:
        target = cell.dereference()
        return target["name"], target["value_"]
    except gdb.error:
        # A class with virtual functions is described once, in the library, which may hold no such
        # description: after the virtual table and the count come the name and the value.
        def at(offset, name):
            address = int(cell) + offset
            return gdb.Value(address).cast(gdb.lookup_type(name).pointer()).dereference()

        return at(16, "std::string"), at(48, "tandem::Tensor")


class CellPrinter:
    """A Param or Buffer: its name, and its tensor below."""

    def __init__(self, value):
        self.kind = value.dynamic_type.strip_typedefs().name.split("::")[-1]
        self.cell = value["cell_"]["p_"]

    def to_string(self):
        if int(self.cell) == 0:
            return self.kind + "(undefined)"
        text = cell_parts(self.cell)[0]  # by hand: the printers of libstdc++ may not be there
        name = text["_M_dataplus"]["_M_p"].string(length=int(text["_M_string_length"]))
        return "%s %s" % (self.kind, name) if name else self.kind

    def children(self):
        if int(self.cell):
            yield "value", cell_parts(self.cell)[1]


class OneLine:
    def __init__(self, value, text):
        self.value, self.text = value, text

    def to_string(self):
        return self.text(self.value)


def build():
    printers = gdb.printing.RegexpCollectionPrettyPrinter("tandem")
    add = printers.add_printer
    add("Tensor", "^tandem::Tensor$", TensorPrinter)
    add("Cell", "^tandem::(Param|Buffer)$", CellPrinter)
    add("Shape", "^tandem::Shape$", lambda v: OneLine(v, lambda v: shape_text(sizes_of(v))))
    add("Dim", "^tandem::Dim$", lambda v: OneLine(v, lambda v: dim_text(int(v["v_"]))))
    add("DType", "^tandem::DType$", lambda v: OneLine(v, lambda v: dtype_of(v)[0]))
    add("Device", "^tandem::Device$", lambda v: OneLine(v, device_text))
    return printers


gdb.printing.register_pretty_printer(gdb.current_objfile(), build(), replace=True)
