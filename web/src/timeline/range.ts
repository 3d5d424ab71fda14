// The stretch of time that the timeline shows, and the pure arithmetic of moving it.

export interface Range {
  readonly from_ns: number;
  readonly to_ns: number;
}

/** The narrowest stretch of time that is shown. */
const WIDTH_MIN_NS = 200;

/** `wanted` moved and narrowed so that it lies inside `0..length_ns` and is not absurdly small. */
export function clampRange(wanted: Range, length_ns: number): Range {
  const whole = Math.max(length_ns, WIDTH_MIN_NS);
  const width = Math.min(whole, Math.max(WIDTH_MIN_NS, wanted.to_ns - wanted.from_ns));
  const from_ns = Math.max(0, Math.min(whole - width, wanted.from_ns));
  return { from_ns, to_ns: from_ns + width };
}

/** Narrower by `factor` (wider below 1), with `at_ns` staying where it is on the screen. */
export function zoomRange(range: Range, factor: number, at_ns: number): Range {
  return { from_ns: at_ns - (at_ns - range.from_ns) / factor, to_ns: at_ns + (range.to_ns - at_ns) / factor };
}

export function moveRange(range: Range, by_ns: number): Range {
  return { from_ns: range.from_ns + by_ns, to_ns: range.to_ns + by_ns };
}

/** `range` moved, if needed, so that a span is inside with some air around its begin. */
export function revealIn(range: Range, begin_ns: number, end_ns: number): Range {
  const width = range.to_ns - range.from_ns;
  if (end_ns >= range.from_ns && begin_ns <= range.to_ns) return range;
  return { from_ns: begin_ns - width / 4, to_ns: begin_ns + (3 * width) / 4 };
}

/** Round moments inside the range for an axis with at most `count_max` labels. */
export function ticks(range: Range, count_max: number): { readonly step_ns: number; readonly at_ns: readonly number[] } {
  const raw = (range.to_ns - range.from_ns) / Math.max(1, count_max);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step_ns = Math.max(1, ([1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10) * power);
  const at_ns: number[] = [];
  for (let tick = Math.ceil(range.from_ns / step_ns); tick * step_ns <= range.to_ns && at_ns.length < 100; tick += 1) {
    at_ns.push(tick * step_ns);
  }
  return { step_ns, at_ns };
}
