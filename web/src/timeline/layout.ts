// Where each event goes: one track per thread, and inside a track one row per level of nesting.
//
// A span lies one row below the spans that were going on when it began, so spans never overlap. The
// main thread is the first track; the others follow in the order in which they first appear.

import type { Recording } from "./recording";

/** Pixels of the axis, of a row, of a track's title, and between tracks. */
export const AXIS_HEIGHT = 26;
export const ROW_HEIGHT = 20;
const TITLE_HEIGHT = 22;
const TRACK_GAP = 10;
/** Rows of a track; what is nested deeper shares the last. */
const ROWS_MAX = 24;

export interface Track {
  readonly thread: number;
  readonly isMain: boolean;
  /** Pixels from the top of the first track to this track's title. */
  readonly top: number;
  readonly rowsTop: number;
  readonly rowCount: number;
  /** Indexes of its events, by begin. */
  readonly order: Uint32Array;
}

export interface Layout {
  readonly tracks: readonly Track[];
  /** Row of each event inside its track; rows past the last one share it. */
  readonly row: Uint8Array;
  /** End of each event; its begin for a point, the end of the recording for a span that never ended. */
  readonly end_ns: Float64Array;
  readonly height: number;
}

export function layOut(recording: Recording): Layout {
  const { thread, time_ns, duration_ns, open } = recording.timeline;
  const row = new Uint8Array(thread.length);
  const end_ns = new Float64Array(thread.length);
  const byThread = new Map<number, number[]>();
  thread.forEach((number, index) => {
    const begin = time_ns[index] ?? 0;
    end_ns[index] = open.has(index) ? recording.length_ns : begin + Math.max(0, duration_ns[index] ?? 0);
    const members = byThread.get(number);
    if (members === undefined) byThread.set(number, [index]);
    else members.push(index);
  });
  const main = Number(recording.process["pid"]);
  const threads = [...byThread.keys()].sort((a, b) => Number(b === main) - Number(a === main));
  const tracks: Track[] = [];
  let top = 0;
  for (const number of threads) {
    const order = Uint32Array.from(byThread.get(number) ?? []);
    order.sort((a, b) => (time_ns[a] ?? 0) - (time_ns[b] ?? 0) || (end_ns[b] ?? 0) - (end_ns[a] ?? 0));
    const rowCount = nest(order, time_ns, end_ns, row);
    tracks.push({ thread: number, isMain: number === main, top, rowsTop: top + TITLE_HEIGHT, rowCount, order });
    top += TITLE_HEIGHT + rowCount * ROW_HEIGHT + TRACK_GAP;
  }
  return { tracks, row, end_ns, height: top };
}

/** Writes the row of every event of one track; returns how many rows there are. */
function nest(order: Uint32Array, begin_ns: Float64Array, end_ns: Float64Array, row: Uint8Array): number {
  const goingOn: number[] = [];
  let deepest = 0;
  for (const index of order) {
    const begin = begin_ns[index] ?? 0;
    const end = end_ns[index] ?? 0;
    while (goingOn.length > 0 && (goingOn[goingOn.length - 1] ?? 0) <= begin) goingOn.pop();
    row[index] = Math.min(goingOn.length, ROWS_MAX - 1);
    deepest = Math.max(deepest, row[index] ?? 0);
    if (end > begin) goingOn.push(end);
  }
  return deepest + 1;
}

/** The event drawn at a place, or null. `y` counts from the top of the first track. */
export function eventAt(layout: Layout, begin_ns: Float64Array, y: number, at_ns: number, reach_ns: number): number | null {
  const track = layout.tracks.find((one) => y >= one.rowsTop && y < one.rowsTop + one.rowCount * ROW_HEIGHT);
  if (track === undefined) return null;
  const row = Math.floor((y - track.rowsTop) / ROW_HEIGHT);
  let nearest: number | null = null;
  let nearest_ns = reach_ns;
  for (const index of track.order) {
    const begin = begin_ns[index] ?? 0;
    if (begin > at_ns + reach_ns) break;
    if (layout.row[index] !== row) continue;
    const away_ns = Math.max(begin - at_ns, at_ns - (layout.end_ns[index] ?? begin), 0);
    if (away_ns <= nearest_ns) {
      nearest = index;
      nearest_ns = away_ns;
    }
  }
  return nearest;
}

/** The event `by` places on in the same thread, of kind number `kind` if one is given. */
export function neighbour(layout: Layout, kinds: Uint32Array, from: number | null, by: 1 | -1, kind: number | null): number | null {
  const track = layout.tracks.find((one) => from === null || one.order.includes(from));
  if (track === undefined) return null;
  let at = from === null ? (by > 0 ? -1 : track.order.length) : track.order.indexOf(from);
  for (at += by; at >= 0 && at < track.order.length; at += by) {
    const index = track.order[at] ?? 0;
    if (kind === null || kinds[index] === kind) return index;
  }
  return from;
}
