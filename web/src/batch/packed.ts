// Packed columns: `PSV1`, the length of a JSON header, the header, then buffers as they lie in memory. Nothing is
// copied: every column is a typed array over the answer itself. The one place where bytes are decoded.

import { checked, Malformed } from "../wire/check";
import type { PackedBatch } from "../wire/types";

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int8Array | Int16Array | Int32Array | Float32Array | Float64Array;

export interface Packed {
  readonly facts: PackedBatch["facts"];
  readonly columns: ReadonlyMap<string, Numbers>;
}

/** "PSV1", little-endian. */
const MAGIC = 0x31565350;
/** Bytes in front of the header: the magic and the header's length. */
const BEFORE = 8;

export function unpack(data: ArrayBuffer): Packed {
  const view = new DataView(data);
  if (data.byteLength < BEFORE || view.getUint32(0, true) !== MAGIC) throw new Malformed("the answer holds no packed columns");
  const begin = BEFORE + view.getUint32(4, true);
  if (begin > data.byteLength) throw new Malformed("the header of packed columns ends behind the answer");
  const header = checked("batch", parsed(new Uint8Array(data, BEFORE, begin - BEFORE)));
  const columns = new Map<string, Numbers>();
  for (const column of header.columns) {
    const at = begin + column.at;
    if (at + column.bytes > data.byteLength) throw new Malformed("a packed column ends behind the answer");
    columns.set(column.name, numbers(data, at, column.bytes, column.dtype));
  }
  return { facts: header.facts, columns };
}

function parsed(header: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(header));
  } catch {
    throw new Malformed("the header of packed columns is no JSON");
  }
}

function numbers(data: ArrayBuffer, at: number, bytes: number, dtype: string): Numbers {
  switch (dtype.slice(1)) {
    case "b1":
    case "u1":
      return new Uint8Array(data, at, bytes);
    case "i1":
      return new Int8Array(data, at, bytes);
    case "u2":
      return new Uint16Array(data, at, bytes / 2);
    case "i2":
      return new Int16Array(data, at, bytes / 2);
    case "f2":
      return halves(new Uint16Array(data, at, bytes / 2));
    case "u4":
      return new Uint32Array(data, at, bytes / 4);
    case "i4":
      return new Int32Array(data, at, bytes / 4);
    case "f4":
      return new Float32Array(data, at, bytes / 4);
    case "f8":
      return new Float64Array(data, at, bytes / 8);
    case "u8":
      return Float64Array.from(new BigUint64Array(data, at, bytes / 8), Number);
    case "i8":
      return Float64Array.from(new BigInt64Array(data, at, bytes / 8), Number);
    default:
      throw new Malformed(`the answer holds numbers of the unknown type ${dtype}`);
  }
}

/** Half-precision numbers, which browsers have no array for everywhere. */
function halves(raw: Uint16Array): Float32Array {
  return Float32Array.from(raw, (bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 0) return sign * 2 ** -24 * fraction;
    if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
    return sign * 2 ** (exponent - 25) * (1024 + fraction);
  });
}
