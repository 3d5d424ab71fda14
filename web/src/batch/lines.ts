// Where lines break: tokens flow in cells of one pitch, and every row of the batch begins a line of its own. One pass
// over the bytes of all tokens; half a million take some milliseconds.

import type { TokenBatch } from "./batch";

export interface Lines {
  readonly count: number;
  /** Index of the first token of each line, with one more at the end. */
  readonly starts: Uint32Array;
  /** Cells that each token takes. */
  readonly widths: Uint8Array;
}

/** Cells that a token takes at most, so that one byte holds them. */
const WIDTH_MAX = 255;

/** `idsToo` makes room for the numbers of tokens below their text. */
export function breakLines(batch: TokenBatch, columns: number, idsToo: boolean): Lines {
  const widths = idsToo ? widthsWithIds(batch) : widthsOf(batch);
  const starts = new Uint32Array(batch.ids.length + batch.rows + 1);
  let count = 0;
  for (let row = 0; row < batch.rows; row++) {
    const end = (row + 1) * batch.length;
    let used = columns + 1;
    for (let index = row * batch.length; index < end; index++) {
      const width = widths[index] ?? 1;
      if (used + width > columns) {
        starts[count++] = index;
        used = 0;
      }
      used += width;
    }
  }
  starts[count] = batch.ids.length;
  return { count, starts, widths };
}

/** The line that holds a token. */
export function lineOf(lines: Lines, index: number): number {
  let low = 0;
  let high = lines.count;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((lines.starts[middle] ?? 0) <= index) low = middle;
    else high = middle;
  }
  return low;
}

function widthsOf(batch: TokenBatch): Uint8Array {
  const { text, ends } = batch;
  const widths = new Uint8Array(ends.length);
  let at = 0;
  for (let index = 0; index < ends.length; index++) {
    const end = ends[index] ?? 0;
    let cells = 0;
    for (; at < end; at++) {
      const byte = text[at] ?? 0;
      // One cell for every character, which its first byte says; two for those of East Asia and for pictures.
      if (byte < 0x80) cells += 1;
      else if (byte >= 0xc0) cells += byte >= 0xe3 ? 2 : 1;
    }
    widths[index] = cells === 0 ? 1 : cells > WIDTH_MAX ? WIDTH_MAX : cells;
  }
  return widths;
}

function widthsWithIds(batch: TokenBatch): Uint8Array {
  const widths = widthsOf(batch);
  for (let index = 0; index < widths.length; index++) {
    // Numbers are drawn at four fifths of the size, and need a gap between them.
    const digits = Math.ceil((String(batch.ids[index]).length + 1) * 0.8);
    if ((widths[index] ?? 0) < digits) widths[index] = digits;
  }
  return widths;
}
