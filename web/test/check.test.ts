// The border: answers that fit the schema pass as they are, others are refused with the first place that does not fit.

import { expect, test } from "vitest";

import { checked, Malformed } from "../src/wire/check";

const SUMMARY = { address: "web@1", number: 1, digest: "b3:0", format: "jsonl", rows: 3, bytes: 9, shards: 1, fields: 1, created: "", note: "", derived: false };
const DATASETS = { registry: "/r", datasets: [{ ...SUMMARY, name: "web", tags: { gold: 1 } }, { name: "bad", problem: "damaged" }], left_out: 0, command: "" };

test("an answer that fits is given on as it is, with what a newer server says besides", () => {
  const answer = { ...DATASETS, since: "a later version" };

  expect(checked("datasets", answer)).toBe(answer);
});

test.each([
  [{ ...DATASETS, registry: 7 }, "registry should be text and is 7"],
  [{ ...DATASETS, datasets: {} }, "datasets should be a list and is an object"],
  [{ ...DATASETS, datasets: [{ ...DATASETS.datasets[0], tags: { gold: "1" } }] }, 'datasets[0].tags.gold should be a number and is "1"'],
  [{ registry: "/r", datasets: [], left_out: 0 }, 'it lacks "command"'],
  [{ ...DATASETS, datasets: [{ name: "web" }] }, 'datasets[0] lacks "address"'],
  [null, "it should be an object and is null"],
  ["<html>", 'it should be an object and is "<html>"'],
])("an answer that does not fit is refused: %#", (answer, words) => {
  expect(() => checked("datasets", answer)).toThrow(new Malformed(`the answer of api/datasets does not fit: ${words}`));
});

test("the refusal says what to do", () => {
  expect(new Malformed("").hint).toContain("reload the page");
});

test("null is only where it is declared, and tuples have their length", () => {
  const lineage = { places: [], arrows: [["a", "b"]], left_out: 0, at: "a", command: "" };

  expect(checked("lineage", lineage)).toBe(lineage);
  expect(() => checked("lineage", { ...lineage, arrows: [["a"]] })).toThrow("arrows[0] should be a list of 2 and has 1");
  expect(() => checked("lineage", { ...lineage, at: null })).toThrow("at should be text and is null");
});

test("a word that is not among those declared is refused", () => {
  const check = { name: "n", verdict: "splendid", value: "", hint: "" };

  expect(() => checked("doctor", { version: "1", checks: [check], examined_ms: 0 })).toThrow('checks[0].verdict should be "fail" or "info" or "ok" or "warn"');
});
