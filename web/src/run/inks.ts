// The colours of charts as they are now; CSS owns them, for both themes.

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

export function readInks(host: HTMLElement): Inks {
  const probe = document.createElement("i");
  host.append(probe);
  const colourOf = (name: string): string => {
    probe.className = name;
    return getComputedStyle(probe).color;
  };
  const inks: Inks = {
    lines: Array.from({ length: LINES }, (_, number) => colourOf(`ink-line-${number}`)),
    ink: colourOf("probe-ink"),
    soft: colourOf("probe-soft"),
    grid: colourOf("ink-grid"),
    life: colourOf("probe-accent"),
    incident: colourOf("ink-fail"),
    skip: colourOf("ink-warn"),
    heat: Array.from({ length: HEAT }, (_, number) => colourOf(`ink-heat-${number}`)),
  };
  probe.remove();
  return inks;
}

/** A colour of the canvas with an alpha; `colour` is what `getComputedStyle` says. */
export function faded(colour: string, alpha: number): string {
  const parts = colour.match(/[\d.]+/g) ?? [];
  return colour.startsWith("rgb") ? `rgba(${parts.slice(0, 3).join(", ")}, ${alpha})` : colour;
}
