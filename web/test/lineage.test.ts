// Where versions stand in the picture of a lineage, and what a search keeps.

import { expect, test } from "vitest";

import { BOX, layOutPlaces } from "../src/data/placement";
import { matches } from "../src/part/search";

const place = (address: string, level: number) => ({ address, digest: "", level, known: true });

test("levels are columns from left to right, each centred on the tallest", () => {
  const { spots, width, height } = layOutPlaces([place("child", 1), place("own", 0), place("a", -2), place("b", -2), place("c", -2)]);
  const step = BOX.height + BOX.down;

  expect(["a", "own", "child"].map((name) => spots.get(name)?.x)).toEqual([0, 1, 2].map((column) => column * (BOX.width + BOX.across)));
  expect(["a", "b", "c"].map((name) => spots.get(name)?.y)).toEqual([0, step, 2 * step]);
  expect(spots.get("own")?.y).toBe(step);
  expect([width, height]).toEqual([3 * BOX.width + 2 * BOX.across, 3 * BOX.height + 2 * BOX.down]);
});

test("a search keeps what has every word somewhere, whatever the case", () => {
  expect(matches("WEB  par", ["web/parquet", ""])).toBe(true);
  expect(matches("web json", ["web/parquet", "jsonl"])).toBe(true);
  expect(matches("web xml", ["web/parquet"])).toBe(false);
  expect(matches("  ", [])).toBe(true);
});
