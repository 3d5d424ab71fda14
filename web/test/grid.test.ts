// The layout of the token grid: where lines break, which line holds a token, how tokens are coloured, what a row is made of.

import { expect, test } from "vitest";

import { documentAt, textOf } from "../src/batch/batch";
import { budgetOf } from "../src/batch/budget";
import { colourNames, levels, painter } from "../src/batch/colour";
import { breakLines, lineOf } from "../src/batch/lines";
import { piecesOf, unresetOf } from "../src/batch/packing";
import { tokenBatch } from "./samples";

test("every row of the batch begins a line, and tokens take a cell for each character, two for wide ones", () => {
  const lines = breakLines(tokenBatch(), 5, false);

  expect([...lines.widths]).toEqual([2, 1, 4, 1, 1, 1, 1, 1]);
  // "ab" and "c" fill three cells; "日本" needs four and "d" still fits; the second row fits on one line.
  expect([...lines.starts.slice(0, lines.count + 1)]).toEqual([0, 2, 4, 8]);
});

test("with ids every token has room for its number", () => {
  const lines = breakLines(tokenBatch(), 8, true);

  expect(Math.min(...lines.widths)).toBe(4);
  expect([...lines.starts.slice(0, lines.count + 1)]).toEqual([0, 2, 4, 6, 8]);
});

test("a token wider than a line has a line of its own", () => {
  expect([...breakLines(tokenBatch(), 1, false).starts.slice(0, 5)]).toEqual([0, 1, 2, 3, 4]);
});

test.each([1, 2, 3, 5, 100])("with %d columns every token is on the line that begins last before it", (columns) => {
  const batch = tokenBatch();
  const lines = breakLines(batch, columns, false);

  for (let index = 0; index < batch.ids.length; index++) {
    const line = lineOf(lines, index);
    expect(lines.starts[line]).toBeLessThanOrEqual(index);
    expect(lines.starts[line + 1]).toBeGreaterThan(index);
  }
});

test("colours have names, and padding has the first", () => {
  const batch = tokenBatch({ reward: Float32Array.of(-2, -1, 0, 1, 2, NaN, 0, 0) });
  const shown = (by: string) => Array.from(batch.ids, (_, index) => colourNames(batch, by)[painter(batch, by)(index)]);

  expect(shown("segment")).toEqual(["seg-1", "seg-1", "seg-2", "seg-2", "seg-1", "seg-1", "seg-1", "pad"]);
  expect(shown("loss")).toEqual(["loss-1", "loss-1", "loss-0", "loss-1", "loss-1", "loss-1", "loss-0", "pad"]);
  expect(shown("source").slice(-2)).toEqual(["src-0", "pad"]);
  expect(shown("reward")).toEqual(["level-0", "level-2", "level-4", "level-6", "level-8", "level-none", "level-4", "pad"]);
  expect(shown("no such column")).toEqual([...Array<string>(7).fill("plain"), "pad"]);
});

test("levels go around zero where there are both signs, else from least to most", () => {
  expect([-1, 0, 4].map(levels(Float32Array.of(-1, 4)))).toEqual([3, 4, 8]);
  expect([10, 15, 20].map(levels(Float32Array.of(10, 20)))).toEqual([0, 4, 8]);
  expect([7].map(levels(Float32Array.of(7)))).toEqual([0]);
});

test("a row's documents, and those whose positions do not begin anew", () => {
  const batch = tokenBatch({ positions: Uint16Array.of(0, 1, 2, 3, 0, 1, 2, 0) });

  expect(piecesOf(batch, 0).map(({ at, stop, sample }) => [at, stop, sample])).toEqual([[0, 2, 5], [2, 4, 9]]);
  expect([unresetOf(batch, 0), unresetOf(batch, 1)]).toEqual([1, 0]);
  expect([documentAt(batch, 0, 1), documentAt(batch, 0, 2), documentAt(batch, 1, 3)]).toEqual([0, 1, -1]);
});

test("tokens and those of them that count, by source and by kind", () => {
  const { sources, kinds } = budgetOf(tokenBatch());

  expect(sources).toEqual([{ name: "web", colour: "src-0", tokens: 7, loss: 5 }]);
  expect(kinds.map(({ name, tokens, loss }) => [name, tokens, loss])).toEqual([["text", 6, 4], ["special", 1, 1], ["padding", 1, 0]]);
});

test("the text of a token is its own, whatever its bytes", () => {
  const batch = tokenBatch();

  expect(Array.from(batch.ids, (_, index) => textOf(batch, index))).toEqual(["ab", "c", "日本", "d", "e", "f", "é", "·"]);
});
