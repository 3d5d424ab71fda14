// The page of a run, as far as it only computes: addresses, smoothing, units, marks, bars, shades, and when it asks again.

import { expect, test } from "vitest";

import { colourOf, segmentsOf } from "../src/run/accounts";
import { isWholeRun, runAddress, runName, stepAddress } from "../src/run/address";
import { pauseOf } from "../src/run/follow";
import { levelOf, mixed, shadeOf } from "../src/run/heatscale";
import { marksNear, marksOf } from "../src/run/marks";
import { smoothed, weightOf } from "../src/run/smooth";
import { formatMeasured, formatTick, formatValue } from "../src/run/units";

test.each(["runs/exp 1", "a#b%c", "<b>x</b>", "日本/ü", 'q"u\'o?te'])("the address of the run %s leads back to its name", (name) => {
  const address = runAddress(name);

  expect(isWholeRun(address)).toBe(true);
  expect(runName(address)).toBe(name);
  expect(isWholeRun(stepAddress(address, 7))).toBe(false);
});

test("a path that is not encoded rightly is a name as it stands", () => expect(runName("run:100%")).toBe("100%"));

test("smoothing keeps a constant, keeps gaps, and begins at the first value", () => {
  expect(smoothed([3, 3, null, 3], 0.9).map((value) => value && Number(value.toFixed(9)))).toEqual([3, 3, null, 3]);
  expect(smoothed([4, 0], 0.5)[0]).toBe(4);
  expect(smoothed([4, 0], 0.5)[1]).toBeCloseTo(4 / 3);
  expect(smoothed([1, null, 2], 0)).toEqual([1, null, 2]);
});

test.each([
  ["0.9", 0.9],
  [".98", 0.98],
  ["1", 0],
  ["-0.5", 0],
  ["1e9", 0],
  [undefined, 0],
])("the weight %s of a URL is %s", (text, weight) => expect(weightOf(text)).toBe(weight));

test.each([
  [18_563_867, "ns", "18.6 ms"],
  [159_000_000, "bytes", "159 MB"],
  [0.6891, "share", "68.9 %"],
  [25_303.4, "rate", "25,303"],
  [3e-4, "number", "3.00e-4"],
  [1.96983, "number", "1.97"],
  [Number.NaN, "number", "NaN"],
])("%s in %s reads %s", (value, unit, text) => expect(formatValue(value, unit)).toBe(text));

test("what was not measured stays the word that says so", () => expect(formatMeasured("unmeasured", "ns")).toBe("unmeasured"));

test.each([
  [150_000_000, "ns", "150 ms"],
  [1_500_000_000, "ns", "1.5 s"],
  [0, "bytes", "0"],
  [40_000, "rate", "40k"],
  [0.2, "share", "20 %"],
  [3e-4, "number", "3e-4"],
])("a tick at %s in %s reads %s", (value, unit, text) => expect(formatTick(value, unit)).toBe(text));

const LIFE = { life: 0, step: 0, last_step: 9, ranks: 1, began_s: 1, end: "" };
const MARKS = {
  lives: [LIFE, { ...LIFE, life: 1, step: 8 }],
  incidents: [{ kind: "death", life: 0, cause: "", ranks: 1, device_ns: 5, accounts: {}, lost_steps: 2, step: 9 }],
  checkpoints: [{ step: 4, life: 0, at_s: 1, bytes: 1, written: 1, stall_ns: 1, durable_ns: 1 }],
  checkpoints_left_out: 0,
  skips: [{ first: 5, end: 7, reason: "<b>bad</b>" }],
};

test("marks stand in the order of steps, without the first life", () => {
  expect(marksOf(MARKS).map((mark) => [mark.kind, mark.step])).toEqual([
    ["checkpoint", 4],
    ["skip", 5],
    ["life", 8],
    ["incident", 9],
  ]);
  expect(marksNear(marksOf(MARKS), 6, 0).map((mark) => mark.kind)).toEqual(["skip"]);
  expect(marksNear(marksOf(MARKS), 7, 0)).toEqual([]);
});

test("a bar has all of its time once: train is taken apart into its parts", () => {
  const segments = segmentsOf({ accounts: { start: 2, train: 6, lost: 0 }, parts: { forward: 4, unmeasured: 2 } }, 16);

  expect(segments.map((segment) => [segment.name, segment.ns, segment.width])).toEqual([
    ["start", 2, 0.125],
    ["train.forward", 4, 0.25],
    ["train.unmeasured", 2, 0.125],
  ]);
  expect(colourOf("train.forward")).toBe("acc-train-forward");
});

test("shades go from the first to the last, and a flat column has one", () => {
  const shades = ["rgb(0, 0, 0)", "rgb(100, 0, 0)", "rgb(200, 0, 0)"];

  expect(shadeOf(0, 0, 4, shades)).toBe("rgb(0, 0, 0)");
  expect(shadeOf(1, 0, 4, shades)).toBe("rgb(100, 0, 0)");
  expect(shadeOf(4, 0, 4, shades)).toBe("rgb(200, 0, 0)");
  expect(levelOf(3, 3, 3)).toBe(0);
  expect(mixed("red", "blue", 0.5)).toBe("red");
});

test("a run that is dear to load, or does not answer, is asked less often, and never less than every ten minutes", () => {
  expect(pauseOf(true, 0, 0)).toBe(3_000);
  expect(pauseOf(true, 2_000, 0)).toBe(40_000);
  expect(pauseOf(false, 0, 0)).toBe(30_000);
  expect(pauseOf(true, 0, 2)).toBe(12_000);
  expect(pauseOf(true, 1e9, 99)).toBe(600_000);
});
