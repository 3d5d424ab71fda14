// How tokens are coloured: by segment, by loss, by source, or by the value of a number. CSS owns the colours.

import { NO_SOURCE, PADDING, type TokenBatch } from "./batch";
import type { Numbers } from "./packed";

/** What every batch can be coloured by. */
export const COLOURINGS = ["segment", "loss", "source", "none"] as const;
/** One of the colourings, or the name of a numeric column. */
export type Colouring = string;

/** How many colours there are for segments, sources, and levels of a number. */
const SEGMENTS = 6;
const SOURCES = 8;
const LEVELS = 9;

/** The number of a token's colour among `colourNames`; 0 is padding. */
export type Painter = (index: number) => number;

/** Classes of all colours that a colouring can give, in order. */
export function colourNames(batch: TokenBatch, by: Colouring): readonly string[] {
  if (by === "segment") return ["pad", ...range(SEGMENTS).map((number) => `seg-${number}`)];
  if (by === "loss") return ["pad", "loss-0", "loss-1"];
  if (by === "source") return ["pad", ...range(SOURCES).map((number) => `src-${number}`)];
  if (batch.numeric.has(by)) return ["pad", ...range(LEVELS).map((number) => `level-${number}`), "level-none"];
  return ["pad", "plain"];
}

export function painter(batch: TokenBatch, by: Colouring): Painter {
  const { kinds, segments, mask, source } = batch;
  const column = batch.numeric.get(by);
  if (by === "segment") return (index) => (kinds[index] === PADDING ? 0 : 1 + ((segments[index] ?? 0) % SEGMENTS));
  if (by === "loss") return (index) => (kinds[index] === PADDING && mask[index] === 0 ? 0 : mask[index] === 0 ? 1 : 2);
  if (by === "source") return (index) => (source[index] === NO_SOURCE ? 0 : 1 + ((source[index] ?? 0) % SOURCES));
  if (column !== undefined) {
    const level = levels(column);
    return (index) => (kinds[index] === PADDING ? 0 : 1 + level(column[index] ?? NaN));
  }
  return (index) => (kinds[index] === PADDING ? 0 : 1);
}

/** Which of nine levels a value has: around zero where there are both signs, else from least to most. */
export function levels(column: Numbers): (value: number) => number {
  let [low, high] = [Infinity, -Infinity];
  for (const value of column) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low < 0 && high > 0) {
    high = Math.max(high, -low);
    low = -high;
  }
  const span = high - low || 1;
  return (value) => (Number.isFinite(value) ? Math.min(LEVELS - 1, Math.floor(((value - low) / span) * LEVELS)) : LEVELS);
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}
