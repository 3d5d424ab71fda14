// Where versions stand in the picture of a lineage: parents on the left, children on the right.

import type { LineagePlace } from "../wire/types";

/** Pixels of a version's box, and of the gaps between boxes. */
export const BOX = { width: 236, height: 46, across: 72, down: 14 };

export interface Spot {
  readonly x: number;
  readonly y: number;
}

/** Columns by level, each centred on the tallest. */
export function layOutPlaces(places: readonly LineagePlace[]): { spots: ReadonlyMap<string, Spot>; width: number; height: number } {
  const levels = [...new Set(places.map((place) => place.level))].sort((a, b) => a - b);
  const columns = levels.map((level) => places.filter((place) => place.level === level));
  const step = BOX.height + BOX.down;
  const height = Math.max(...columns.map((column) => column.length)) * step - BOX.down;
  const spots = new Map<string, Spot>();
  columns.forEach((column, across) => {
    const top = (height - (column.length * step - BOX.down)) / 2;
    column.forEach((place, down) => spots.set(place.address, { x: across * (BOX.width + BOX.across), y: top + down * step }));
  });
  return { spots, width: columns.length * (BOX.width + BOX.across) - BOX.across, height };
}
