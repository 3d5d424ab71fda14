// From a value to a shade. By the square root, so that what is twice the usual shows beside what is a hundred times.

/** Where a value stands between two ends, from 0 to 1. */
export function levelOf(value: number, low: number, high: number): number {
  if (!(high > low)) return 0;
  return Math.sqrt(Math.max(0, Math.min(1, (value - low) / (high - low))));
}

/** The shade of a level, from the lightest to the darkest. */
export function shadeOf(value: number, low: number, high: number, shades: readonly string[]): string {
  const place = levelOf(value, low, high) * (shades.length - 1);
  const first = Math.min(Math.floor(place), shades.length - 2);
  return mixed(shades[first] ?? "", shades[first + 1] ?? "", place - first);
}

/** Between two colours as `getComputedStyle` writes them. */
export function mixed(from: string, to: string, part: number): string {
  const one = numbers(from);
  const other = numbers(to);
  if (one.length < 3 || other.length < 3) return from;
  return `rgb(${[0, 1, 2].map((at) => Math.round((one[at] ?? 0) + part * ((other[at] ?? 0) - (one[at] ?? 0)))).join(", ")})`;
}

function numbers(colour: string): number[] {
  return colour.startsWith("rgb") ? (colour.match(/[\d.]+/g) ?? []).map(Number) : [];
}
