// The colours of charts as they are now; CSS owns them, for both themes.

import { currentTheme } from "../theme";

export interface Inks {
  readonly lines: readonly string[];
  readonly ink: string;
  readonly soft: string;
  readonly grid: string;
  readonly life: string;
  readonly incident: string;
  readonly skip: string;
  readonly heat: readonly string[];
}

/** Colours of lines. */
const LINES = 3;
/** Shades of the map. */
const HEAT = 5;

/** The colour that a class of the style sheet has here. */
export function colourOf(host: HTMLElement, name: string): string {
  const probe = document.createElement("i");
  probe.className = name;
  host.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Colours by theme: reading them makes the browser compute styles, and a page has a dozen charts. */
const known = new Map<string, Inks>();

export function readInks(host: HTMLElement): Inks {
  const theme = currentTheme();
  const inks = known.get(theme) ?? probed(host);
  known.set(theme, inks);
  return inks;
}

function probed(host: HTMLElement): Inks {
  const probe = document.createElement("i");
  host.append(probe);
  const colour = (name: string): string => {
    probe.className = name;
    return getComputedStyle(probe).color;
  };
  const inks: Inks = {
    lines: Array.from({ length: LINES }, (_, number) => colour(`ink-line-${number}`)),
    ink: colour("probe-ink"),
    soft: colour("probe-soft"),
    grid: colour("ink-grid"),
    life: colour("probe-accent"),
    incident: colour("ink-fail"),
    skip: colour("ink-warn"),
    heat: Array.from({ length: HEAT }, (_, number) => colour(`ink-heat-${number}`)),
  };
  probe.remove();
  return inks;
}

/** A colour of the canvas with an alpha; `colour` is what `getComputedStyle` says. */
export function faded(colour: string, alpha: number): string {
  const parts = colour.match(/[\d.]+/g) ?? [];
  return colour.startsWith("rgb") ? `rgba(${parts.slice(0, 3).join(", ")}, ${alpha})` : colour;
}
