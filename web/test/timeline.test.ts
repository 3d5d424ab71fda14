// The timeline's layout and arithmetic: tracks by thread, rows by nesting, what is under the pointer, ranges and ticks.

import { expect, test } from "vitest";

import { eventAt, layOut, neighbour, ROW_HEIGHT } from "../src/timeline/layout";
import { clampRange, revealIn, ticks, zoomRange } from "../src/timeline/range";
import { spanWords } from "../src/timeline/words";
import { recording } from "./samples";

const NESTED = recording([
  [2, 0, 100],
  [1, 0, 900],
  [1, 100, 200],
  [1, 150, null],
  [1, 400, Infinity],
]);

test("the main thread is the first track, and a span lies one row below what was going on when it began", () => {
  const layout = layOut(NESTED);

  expect(layout.tracks.map(({ thread, isMain, rowCount }) => [thread, isMain, rowCount])).toEqual([[1, true, 3], [2, false, 1]]);
  expect([...layout.row]).toEqual([0, 0, 1, 2, 1]);
  expect([...layout.end_ns]).toEqual([100, 900, 300, 150, 1000]);
});

test("what is drawn at a place is found, within reach and nowhere else", () => {
  const layout = layOut(NESTED);
  const first = layout.tracks[0]?.rowsTop ?? 0;
  const find = (row: number, at_ns: number) => eventAt(layout, NESTED.timeline.time_ns, first + row * ROW_HEIGHT + 3, at_ns, 10);

  expect([find(0, 500), find(1, 200), find(2, 155), find(1, 350), find(1, 800)]).toEqual([1, 2, 3, null, 4]);
  expect(eventAt(layout, NESTED.timeline.time_ns, -5, 0, 10)).toBeNull();
});

test("neighbours are of the same thread, in the order of their begin, and the last stays", () => {
  const layout = layOut(NESTED);
  const from = (index: number | null, by: 1 | -1) => neighbour(layout, NESTED.timeline.kind, index, by, null);

  expect([from(null, 1), from(1, 1), from(4, 1), from(2, -1), from(0, 1)]).toEqual([1, 2, 4, 1, 0]);
});

test("an event in words", () => {
  expect([1, 3, 4].map((index) => spanWords(NESTED, index))).toEqual(["at 0 ns, took 900 ns", "at 150 ns, a point in time", "at 400 ns, never ended"]);
});

test("a range stays inside the recording and keeps what is under the pointer", () => {
  expect(clampRange({ from_ns: -50, to_ns: 450 }, 1000)).toEqual({ from_ns: 0, to_ns: 500 });
  expect(clampRange({ from_ns: 900, to_ns: 900 }, 1000)).toEqual({ from_ns: 800, to_ns: 1000 });
  expect(zoomRange({ from_ns: 0, to_ns: 1000 }, 2, 250)).toEqual({ from_ns: 125, to_ns: 625 });
  expect(revealIn({ from_ns: 0, to_ns: 100 }, 500, 510)).toEqual({ from_ns: 475, to_ns: 575 });
  expect(revealIn({ from_ns: 0, to_ns: 100 }, 90, 510)).toEqual({ from_ns: 0, to_ns: 100 });
});

test.each([1, 3, 7, 1000, 12_345, 1e9])("ticks of a range of %d ns are round, inside, and not too many", (width) => {
  const range = { from_ns: 10, to_ns: 10 + width };
  const { step_ns, at_ns } = ticks(range, 6);

  expect(at_ns.length).toBeLessThanOrEqual(7);
  expect(at_ns.every((at) => at >= range.from_ns && at <= range.to_ns && at % step_ns === 0)).toBe(true);
});
