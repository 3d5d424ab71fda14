// Batches and recordings for tests, made as the server makes them: packed bytes, and JSON that passes the check.

import { readBatch, type TokenBatch } from "../src/batch/batch";
import { readRecording, type Recording } from "../src/timeline/recording";
import type { PackedColumn, TokenBatchHead } from "../src/wire/types";

type Column = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array | BigUint64Array;

const DTYPES: Readonly<Record<string, string>> = {
  Uint8Array: "|u1",
  Uint16Array: "<u2",
  Uint32Array: "<u4",
  Int32Array: "<i4",
  Float32Array: "<f4",
  Float64Array: "<f8",
  BigUint64Array: "<u8",
};

/** Columns as `penstock.data.tap.columns.pack` writes them. */
export function pack(facts: unknown, columns: Readonly<Record<string, Column>>, dtypes: Readonly<Record<string, string>> = {}): ArrayBuffer {
  const about: PackedColumn[] = [];
  let at = 0;
  for (const [name, values] of Object.entries(columns)) {
    about.push({ name, dtype: dtypes[name] ?? DTYPES[values.constructor.name] ?? "", shape: [values.length], at, bytes: values.byteLength });
    at += Math.ceil(values.byteLength / 8) * 8;
  }
  let header = JSON.stringify({ facts, columns: about });
  header += " ".repeat((8 - (header.length % 8)) % 8);
  const data = new Uint8Array(8 + header.length + at);
  data.set(new TextEncoder().encode("PSV1"));
  new DataView(data.buffer).setUint32(4, header.length, true);
  data.set(new TextEncoder().encode(header), 8);
  Object.values(columns).forEach((values, number) => {
    data.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), 8 + header.length + (about[number]?.at ?? 0));
  });
  return data.buffer;
}

export const HEAD: TokenBatchHead = {
  step: 7,
  lane: "0/1",
  digest: "b3:00",
  command: "penstock view r.toml#step=7",
  data_command: "penstock data peek r.toml --steps 7",
  address: "r.toml#step=7",
  rows: 2,
  padding: 1,
  kind: "tokens",
  length: 4,
  dtype: "uint16",
  loss_tokens: 5,
  columns: ["tokens", "segments", "positions", "loss_mask"],
  sources: [{ alias: "web", version: "web@1", tokenizer: null }],
  window: { address: "r.toml#step=7", rows: [0, 2], tokens: [0, 4], of_rows: 2, of_tokens: 4, cuts: [], sources: [] },
  kinds: ["text"],
};

/** Two rows of four tokens: "ab", "c", "日本", "d" and "e", "f", "é", padding. */
export function columnsOf(texts: readonly string[] = ["ab", "c", "日本", "d", "e", "f", "é", "·"]): Record<string, Column> {
  const encoded = texts.map((text) => new TextEncoder().encode(text));
  let end = 0;
  const ends = Uint32Array.from(encoded, (one) => (end += one.length));
  const text = new Uint8Array(end);
  encoded.forEach((one, index) => text.set(one, (ends[index] ?? 0) - one.length));
  return {
    tokens: Uint16Array.from(texts, (_, index) => 100 + index),
    segments: Uint8Array.of(1, 1, 2, 2, 1, 1, 1, 0),
    positions: Uint16Array.of(0, 1, 0, 1, 0, 1, 2, 0),
    loss_mask: Uint8Array.of(1, 1, 0, 1, 1, 1, 0, 0),
    sources: Uint16Array.of(0, 0, 0, 0, 0, 0, 0, 0xffff),
    kinds: Uint8Array.of(0, 0, 0, 1, 0, 0, 0, 4),
    text,
    text_ends: ends,
    document_row: Uint32Array.of(0, 0, 1),
    document_at: Uint32Array.of(0, 2, 0),
    document_stop: Uint32Array.of(2, 4, 3),
    document_source: Uint16Array.of(0, 0, 0),
    document_sample: BigUint64Array.of(5n, 9n, 2n ** 40n),
    document_start: BigUint64Array.of(0n, 0n, 3n),
    document_epoch: Uint32Array.of(0, 0, 1),
  };
}

export function tokenBatch(more: Record<string, Column> = {}): TokenBatch {
  const read = readBatch(pack(HEAD, { ...columnsOf(), ...more }));
  if (read.kind !== "tokens") throw new Error("these are records");
  return read.batch;
}

/** Events as [thread, begin, duration]; a duration of null is a point, one of Infinity a span that never ended. */
export function recording(events: readonly (readonly [number, number, number | null])[], length_ns = 1000): Recording {
  return readRecording({
    name: "a.pev",
    path: "/events/a.pev",
    process: { pid: 1 },
    lost: 0,
    torn_bytes: 0,
    closed: true,
    event_count: events.length,
    length_ns,
    kinds: [],
    kinds_left_out: 0,
    timeline: {
      names: ["step"],
      kind: events.map(() => 0),
      thread: events.map(([thread]) => thread),
      time_ns: events.map(([, begin]) => begin),
      duration_ns: events.map(([, , duration]) => (duration === Infinity ? null : duration)),
      open: events.flatMap(([, , duration], index) => (duration === Infinity ? [index] : [])),
    },
  });
}
