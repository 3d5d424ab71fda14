// Where each host is drawn: cells as large as they can be, hosts of one rack together, racks one after the other as words of a text. Pure.

/** Pixels of a cell, at most and at least. */
const SIZE_MAX = 28;
const SIZE_MIN = 2;
/** Cells from this size on have a gap between them. */
const GAP_FROM = 4;

export interface Layout {
  /** Places of hosts in the order in which they are drawn. */
  readonly order: Uint32Array;
  /** Column and row of each of these. */
  readonly columns: Uint16Array;
  readonly rows: Uint32Array;
  /** The number in `order` of each place, -1 of those that are not drawn. */
  readonly numbers: Int32Array;
  /** Pixels of a cell, with its gap. */
  readonly size: number;
  readonly gap: number;
  readonly across: number;
  readonly height: number;
}

/** Lays hosts out; `rack` draws only those of one rack. */
export function layOut(racks: Uint32Array, rackCount: number, width: number, height: number, rack: number | null): Layout {
  const ends = new Uint32Array(rackCount + 1);
  for (const number of racks) if (rack === null || number === rack) ends[number + 1]! += 1;
  for (let number = 0; number < rackCount; number++) ends[number + 1]! += ends[number]!;
  const count = ends[rackCount] ?? 0;
  const order = new Uint32Array(count);
  const next = ends.slice();
  for (let place = 0; place < racks.length; place++) {
    const number = racks[place]!;
    if (rack === null || number === rack) order[next[number]!++] = place;
  }
  const size = sizeOf(ends, rackCount, width, height);
  const across = Math.max(1, Math.floor(width / size));
  const columns = new Uint16Array(count);
  const rows = new Uint32Array(count);
  const used = flow(ends, rackCount, across, (at, column, row) => {
    columns[at] = column;
    rows[at] = row;
  });
  const numbers = new Int32Array(racks.length).fill(-1);
  order.forEach((place, at) => (numbers[place] = at));
  return { order, columns, rows, numbers, size, gap: size >= GAP_FROM ? 1 : 0, across, height: Math.max(1, used) * size };
}

/** The host at a point; -1 where there is none. */
export function hitTest(layout: Layout, x: number, y: number): number {
  const column = Math.floor(x / layout.size);
  const row = Math.floor(y / layout.size);
  if (column < 0 || row < 0 || column >= layout.across) return -1;
  // Cells are in order of rows and columns.
  let [low, high] = [0, layout.order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const at = layout.rows[middle]! - row || layout.columns[middle]! - column;
    if (at < 0) low = middle + 1;
    else high = middle;
  }
  return low < layout.order.length && layout.rows[low] === row && layout.columns[low] === column ? layout.order[low]! : -1;
}

/** The host beside another one, `right` cells on or `down` rows; the same at an edge. */
export function beside(layout: Layout, place: number, right: number, down: number): number {
  const last = layout.order.length - 1;
  const at = layout.numbers[place] ?? -1;
  if (last < 0) return -1;
  if (at < 0) return layout.order[0]!;
  if (down === 0) return layout.order[Math.min(Math.max(at + right, 0), last)]!;
  const row = layout.rows[at]! + down;
  const column = layout.columns[at]!;
  // The nearest in that row: never more than a row away.
  let best = at;
  for (let other = at; other >= 0 && other <= last; other += Math.sign(down)) {
    const there = layout.rows[other]!;
    if (there === row && (layout.rows[best] !== row || Math.abs(layout.columns[other]! - column) < Math.abs(layout.columns[best]! - column))) best = other;
    if ((there - row) * Math.sign(down) > 0) break;
  }
  return layout.order[best]!;
}

function sizeOf(ends: Uint32Array, rackCount: number, width: number, height: number): number {
  for (let size = SIZE_MAX; size > SIZE_MIN; size--) {
    const across = Math.floor(width / size);
    if (across >= 1 && flow(ends, rackCount, across) * size <= height) return size;
  }
  return SIZE_MIN;
}

/** Puts racks into rows: none is broken unless it is longer than a row. How many rows there are. */
function flow(ends: Uint32Array, rackCount: number, across: number, put?: (at: number, column: number, row: number) => void): number {
  let [column, row] = [0, 0];
  for (let rack = 0; rack < rackCount; rack++) {
    const [first, end] = [ends[rack]!, ends[rack + 1]!];
    if (end === first) continue;
    if (column > 0) {
      column += 1;
      if (column + (end - first) > across) [column, row] = [0, row + 1];
    }
    if (put === undefined) {
      const after = column + (end - first);
      row += Math.ceil(after / across) - 1;
      column = ((after - 1) % across) + 1;
      continue;
    }
    for (let at = first; at < end; at++) {
      if (column >= across) [column, row] = [0, row + 1];
      put(at, column, row);
      column += 1;
    }
  }
  return row + (column > 0 ? 1 : 0);
}
