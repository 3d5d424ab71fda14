// Packed columns read back, of every type of number; and bytes that are no packed columns.

import { expect, test } from "vitest";

import { readBatch } from "../src/batch/batch";
import { unpack } from "../src/batch/packed";
import { columnsOf, HEAD, pack, tokenBatch } from "./samples";

test("a batch of tokens is read with its numbers, also those of 64 bits", () => {
  const batch = tokenBatch({ reward: Float32Array.of(0, 1, 2, 3, 4, 5, 6, 7) });

  expect([batch.firstRow, batch.rows, batch.length]).toEqual([0, 2, 4]);
  expect([...batch.ids]).toEqual([100, 101, 102, 103, 104, 105, 106, 107]);
  expect([...batch.documents.sample]).toEqual([5, 9, 2 ** 40]);
  expect([...batch.numeric.keys()]).toEqual(["reward"]);
});

test("columns lie over the answer and are not copied", () => {
  const data = pack(HEAD, columnsOf());

  expect(unpack(data).columns.get("tokens")?.buffer).toBe(data);
});

test("half precision and booleans are read", () => {
  const columns = { half: Uint16Array.of(0x3c00, 0xc000, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x8000), flag: Uint8Array.of(1, 0) };
  const read = unpack(pack(HEAD, columns, { half: "<f2", flag: "|b1" })).columns;

  expect([...(read.get("half") ?? [])]).toEqual([1, -2, Infinity, -Infinity, NaN, 2 ** -24, -0]);
  expect([...(read.get("flag") ?? [])]).toEqual([1, 0]);
});

test("a batch of records has no columns", () => {
  const { length: _, dtype, loss_tokens, columns, sources, window, kinds, ...common } = HEAD;
  const read = readBatch(pack({ ...common, kind: "records", fields: ["image"], undecodable: [] }, {}));

  expect(read.kind === "records" && read.batch.facts.fields).toEqual(["image"]);
});

test.each([
  ["a page of a proxy", () => new TextEncoder().encode("<!doctype html><title>502</title>").buffer, "no packed columns"],
  ["nothing", () => new ArrayBuffer(0), "no packed columns"],
  ["an answer that was cut short in its header", () => pack(HEAD, columnsOf()).slice(0, 100), "ends behind the answer"],
  ["an answer that was cut short", () => pack(HEAD, columnsOf()).slice(0, -64), "ends behind the answer"],
  ["another kind of number", () => pack(HEAD, columnsOf(), { tokens: "<c8" }), "unknown type <c8"],
  ["facts of another version", () => pack({ ...HEAD, window: { ...HEAD.window, rows: "0:2" } }, columnsOf()), "facts.window.rows should be a list"],
])("%s is refused in words", (_, data, words) => expect(() => readBatch(data())).toThrow(words));

test("a batch that lacks a column says which", () => {
  const { text_ends: _, ...columns } = columnsOf();

  expect(() => readBatch(pack(HEAD, columns))).toThrow("the batch lacks the column text_ends");
});
