"""Prometheus' XOR chunks, slowly and plainly: an encoder and a decoder over strings of bits."""

import struct

MASK = 2**64 - 1


def bits_of(value: float) -> int:
    return struct.unpack(">Q", struct.pack(">d", value))[0]


def encode(samples: list[tuple[int, int]]) -> bytes:
    """Times (ms) and bit patterns of values, as Prometheus' appender writes them."""
    out = [f"{len(samples):016b}"]
    step = lead = trail = before_ts = before_bits = 0
    has_window = False
    for i, (ts, value) in enumerate(samples):
        if i == 0:
            out += [_varint((ts << 1 ^ ts >> 63) & MASK), f"{value:064b}"]
        else:
            if i == 1:
                step = (ts - before_ts) & MASK
                out.append(_varint(step))
            else:
                new = (ts - before_ts) & MASK
                out.append(_dod(_signed((new - step) & MASK)))
                step = new
            difference = value ^ before_bits
            if not difference:
                out.append("0")
            else:
                text = f"{difference:064b}"
                new_lead = min(len(text) - len(text.lstrip("0")), 31)
                new_trail = len(text) - len(text.rstrip("0"))
                if has_window and new_lead >= lead and new_trail >= trail:
                    out.append("10" + text[lead : 64 - trail])
                else:
                    lead, trail, has_window = new_lead, new_trail, True
                    width = 64 - lead - trail
                    out.append(f"11{lead:05b}{width % 64:06b}{text[lead : 64 - trail]}")
        before_ts, before_bits = ts, value
    text = "".join(out)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def decode(data: bytes) -> list[tuple[int, int]]:
    """The same back. Raises ValueError or IndexError where the data ends too early."""
    bits = _Bits(data)
    n = bits.take(16)
    samples: list[tuple[int, int]] = []
    step = lead = ts = value = 0
    width = 64
    for i in range(n):
        if i == 0:
            raw = bits.varint()
            ts, value = (raw >> 1) ^ -(raw & 1), bits.take(64)
        else:
            step = bits.varint() if i == 1 else (step + bits.dod()) & MASK
            ts = _signed((ts + step) & MASK)
            if bits.take(1):
                if bits.take(1):
                    lead, width = bits.take(5), bits.take(6) or 64
                if lead + width > 64:
                    raise ValueError("window is wider than the number")
                value ^= bits.take(width) << (64 - lead - width)
        samples.append((ts, value))
    return samples


class _Bits:
    def __init__(self, data: bytes) -> None:
        self.text = "".join(f"{byte:08b}" for byte in data)
        self.at = 0

    def take(self, n: int) -> int:
        if self.at + n > len(self.text):
            raise ValueError("the data ends")
        self.at += n
        return int(self.text[self.at - n : self.at], 2)

    def varint(self) -> int:
        value = 0
        for step in range(10):
            byte = self.take(8)
            value |= (byte & 127) << 7 * step
            if byte < 128:
                return value & MASK
        raise ValueError("varint is too long")

    def dod(self) -> int:
        for width in (0, 14, 17, 20):
            if not self.take(1):
                if not width:
                    return 0
                value = self.take(width)
                return value - (1 << width) if value > 1 << (width - 1) else value
        return _signed(self.take(64))


def _varint(value: int) -> str:
    out = []
    while value > 127:
        out.append(f"{value & 127 | 128:08b}")
        value >>= 7
    return "".join([*out, f"{value:08b}"])


def _dod(change: int) -> str:
    if change == 0:
        return "0"
    for prefix, width in (("10", 14), ("110", 17), ("1110", 20)):
        if -(1 << (width - 1)) + 1 <= change <= 1 << (width - 1):
            return prefix + f"{change % (1 << width):0{width}b}"
    return "1111" + f"{change & MASK:064b}"


def _signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value
