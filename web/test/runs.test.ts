// Runs side by side, as far as the page only computes: filter, order, groups, what is drawn, and lines over the steps of all.

import { expect, test } from "vitest";

import { matches } from "../src/part/search";
import { folderOf, foldersOf, isFolderOfRuns, isWholeRun, runsAddress } from "../src/run/address";
import { curvesOf, drawnOf, fieldsOf, formatNames, grouped, joined, numberOf, parseNames, pauseOf, sorted, textsOf } from "../src/runs/choice";
import type { ListedRun } from "../src/wire/types";

function run(name: string, loss: number | null, fields: Record<string, string> = {}, curves = ["loss"]): ListedRun {
  const measured = "unmeasured";
  return {
    name,
    address: `run:${name}`,
    problem: "",
    fields,
    curves,
    summary: {
      name,
      address: `run:${name}`,
      state: "ended",
      step: 9,
      loss,
      ranks: 1,
      lives: 1,
      incidents: 0,
      line: `58 % of 59 s in ${name}`,
      verdict: "named",
      wall_ns: 5,
      speed: { steps: 10, p50_ns: 7, p99_ns: 8, steps_per_s: 1, tokens: measured, tokens_per_s: measured },
      mfu: { value: measured, reason: "no FLOPs" },
      goodput: { runtime: 0.5, runtime_high: 0.5, scheduling: 1, program: measured },
      memory: { rss: 4, memory_peak: measured, memory_reserved: measured, allocator_retries: measured },
    },
  };
}

const names = (runs: readonly ListedRun[]) => runs.map((one) => one.name);
const unread: ListedRun = { name: "x", address: "run:x", summary: null, problem: "", fields: {}, curves: [] };
const RUNS = [run("a", 3, { lr: "0.1", seed: "1" }), run("b", null, { lr: "0.01", seed: "1" }, ["loss", "lr"]), run("c", 1, { lr: "0.1", seed: "1" }), unread];

test("runs are ordered by a number, and what has none comes last either way", () => {
  expect(names(sorted(RUNS, "loss", false))).toEqual(["c", "a", "b", "x"]);
  expect(names(sorted(RUNS, "loss", true))).toEqual(["a", "c", "b", "x"]);
  expect(names(sorted(RUNS, "name", true))).toEqual(["x", "c", "b", "a"]);
  expect(names(sorted(RUNS, "mfu", false))).toEqual(["a", "b", "c", "x"]);
});

test("the filter finds words of names, diagnoses and the configuration", () => {
  const found = (typed: string) => names(RUNS.filter((one) => matches(typed, textsOf(one))));

  expect(found("lr=0.1")).toEqual(["a", "c"]);
  expect(found("58 in b")).toEqual(["b"]);
  expect(found("<b>")).toEqual([]);
});

test("runs are grouped by a field, and numbers are in order of size", () => {
  expect(grouped(RUNS, null)).toEqual([{ value: null, runs: RUNS }]);
  expect(grouped(RUNS, "lr").map((group) => [group.value, names(group.runs)])).toEqual([
    ["", ["x"]],
    ["0.01", ["b"]],
    ["0.1", ["a", "c"]],
  ]);
  expect(grouped([run("p", 1, { n: "10" }), run("q", 1, { n: "9" })], "n").map((group) => group.value)).toEqual(["9", "10"]);
  expect(fieldsOf(RUNS)).toEqual({ differing: ["lr"], equal: ["seed"] });
});

test("what is drawn was chosen, ten at most, or else the first that have the curve", () => {
  expect(names(drawnOf(RUNS, null, "lr"))).toEqual(["b"]);
  expect(names(drawnOf(RUNS, ["c", "gone", "a"], "loss"))).toEqual(["c", "a"]);
  expect(parseNames(formatNames(["a,b", "c/d", "100%"]))).toEqual(["a,b", "c/d", "100%"]);
  expect(parseNames("")).toEqual([]);
  expect(parseNames(undefined)).toBeNull();
  expect(parseNames(Array.from({ length: 40 }, (_, number) => `r${number}`).join(","))).toHaveLength(10);
  expect(curvesOf(RUNS)).toEqual(["loss", "lr"]);
});

test("lines are joined over the steps of all", () => {
  const { steps, values } = joined([{ steps: [0, 2, 4], values: [1, null, 3] }, { steps: [1, 2], values: [7, 8] }]);

  expect(steps).toEqual([0, 1, 2, 4]);
  expect(values).toEqual([
    [1, null, null, 3],
    [null, 7, 8, null],
  ]);
});

test("a folder is asked again at once while runs are to be read, and rarely when nothing runs", () => {
  expect(pauseOf({ pending: 3, running: 0, took_ms: 1000 }, 0)).toBe(50);
  expect(pauseOf({ pending: 0, running: 1, took_ms: 10 }, 0)).toBe(3_000);
  expect(pauseOf({ pending: 0, running: 1, took_ms: 1000 }, 0)).toBe(20_000);
  expect(pauseOf({ pending: 0, running: 0, took_ms: 10 }, 0)).toBe(30_000);
  expect(pauseOf({ pending: 3, running: 0, took_ms: 10 }, 30)).toBe(600_000);
});

test("memory is the device's where that was measured, and a folder has an address", () => {
  const one = run("a", 1);
  if (one.summary === null) throw new Error("it has one");
  expect(numberOf(one.summary, "memory")).toBe(4);
  expect(numberOf({ ...one.summary, memory: { ...one.summary.memory, memory_peak: 9 } }, "memory")).toBe(9);
  expect(runsAddress("a b/<c>")).toBe("runs:a%20b/%3Cc%3E");
  expect([isFolderOfRuns("runs:x"), isFolderOfRuns("run:x"), isWholeRun("runs:x")]).toEqual([true, false, false]);
  expect(foldersOf(["runs/a", "b", "runs/c", "/d"])).toEqual([[".", 1], ["/", 1], ["runs", 2]]);
  expect(folderOf("x/y/z")).toBe("x/y");
});
