// Which colour a kind has. The eight kinds that took most time get one each; the rest share grey, since
// nobody tells twenty colours apart. CSS owns the colours (`.kind-0` … `.kind-rest`), for both themes.

import type { KindRow } from "../wire/types";

/** Kinds with a colour of their own. */
const COLOUR_COUNT = 8;

/** Number of the colour of each coloured kind. The rows come with most time first. */
export function kindColours(rows: readonly KindRow[]): ReadonlyMap<string, number> {
  return new Map(rows.slice(0, COLOUR_COUNT).map((row, number) => [row.kind, number]));
}

export interface Palette {
  readonly kinds: readonly string[];
  readonly rest: string;
  /** Text on top of a kind's colour. */
  readonly label: string;
  readonly ink: string;
  readonly soft: string;
  readonly line: string;
  readonly paper: string;
  readonly accent: string;
}

/** The colours as they are now, for drawing on a canvas inside `host`. */
export function readPalette(host: HTMLElement): Palette {
  const probe = document.createElement("i");
  host.append(probe);
  const colourOf = (name: string, property: "color" | "backgroundColor"): string => {
    probe.className = name;
    return getComputedStyle(probe)[property];
  };
  const palette: Palette = {
    kinds: Array.from({ length: COLOUR_COUNT }, (_, number) => colourOf(`kind-${number}`, "backgroundColor")),
    rest: colourOf("kind-rest", "backgroundColor"),
    label: colourOf("kind-rest", "color"),
    ink: colourOf("probe-ink", "color"),
    soft: colourOf("probe-soft", "color"),
    line: colourOf("probe-line", "color"),
    paper: colourOf("probe-paper", "color"),
    accent: colourOf("probe-accent", "color"),
  };
  probe.remove();
  return palette;
}
