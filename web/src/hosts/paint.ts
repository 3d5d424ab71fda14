// Painting cells. All of them go into one picture, pixel by pixel, which a browser shows at once; what moves later is painted over.

import { colourOf } from "../run/inks";
import { currentTheme } from "../theme";
import { LETTERS, shownCode, STATES, type Board } from "./board";
import type { Layout } from "./layout";

/** Cells from this size on show the letter of their state. */
const LETTER_FROM = 11;
/** Hosts that are not as they should be are drawn at least so large, over their neighbours: a dot of two pixels is not seen. */
const MARK_SIZE = 6;
const HERE = STATES.indexOf("here");

export interface HostInks {
  /** By state, as CSS writes them. */
  readonly states: readonly string[];
  readonly dim: string;
  readonly ink: string;
  readonly paper: string;
}

const known = new Map<string, HostInks>();

/** The colours as they are now; CSS owns them, for both themes. */
export function readHostInks(host: HTMLElement): HostInks {
  const theme = currentTheme();
  const inks = known.get(theme) ?? {
    states: STATES.map((state) => colourOf(host, `ink-host-${state}`)),
    dim: colourOf(host, "ink-host-dim"),
    ink: colourOf(host, "ink-host-letter"),
    paper: colourOf(host, "ink-host-paper"),
  };
  known.set(theme, inks);
  return inks;
}

export interface Scene {
  readonly board: Board;
  readonly layout: Layout;
  readonly inks: HostInks;
  /** Hosts that were searched for; null for all. */
  readonly isFound: Uint8Array | null;
  /** Device pixels for one of the page. */
  readonly unit: number;
}

/** Paints all cells. */
export function paintAll(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { board, layout, inks, unit } = scene;
  const { width, height } = ctx.canvas;
  const picture = pictureOf(ctx);
  const pixels = new Uint32Array(picture.data.buffer);
  pixels.fill(packed(inks.paper));
  const colours = inks.states.map(packed);
  const dim = packed(inks.dim);
  const side = Math.max(1, Math.round((layout.size - layout.gap) * unit));
  const marked: number[] = [];
  for (let at = 0; at < layout.order.length; at++) {
    const place = layout.order[at]!;
    const colour = isDim(scene, place) ? dim : colours[shownCode(board, place)]!;
    const x = Math.round(layout.columns[at]! * layout.size * unit);
    const y = Math.round(layout.rows[at]! * layout.size * unit);
    if (layout.size < MARK_SIZE && shownCode(board, place) < HERE && !isDim(scene, place)) marked.push(at);
    for (let line = y; line < Math.min(y + side, height); line++) pixels.fill(colour, line * width + x, line * width + Math.min(x + side, width));
  }
  ctx.putImageData(picture, 0, 0);
  const shift = (MARK_SIZE - layout.size) / 2;
  // The worst last, so that none covers them.
  marked.sort((one, two) => shownCode(board, layout.order[two]!) - shownCode(board, layout.order[one]!));
  for (const at of marked) {
    ctx.fillStyle = inks.states[shownCode(board, layout.order[at]!)]!;
    ctx.fillRect((layout.columns[at]! * layout.size - shift) * unit, (layout.rows[at]! * layout.size - shift) * unit, MARK_SIZE * unit, MARK_SIZE * unit);
  }
  if (layout.size < LETTER_FROM) return;
  beginLetters(ctx, scene);
  for (const place of layout.order) letter(ctx, scene, place);
}

/** Pictures by canvas: a large one for each change would be left to be collected. */
const pictures = new WeakMap<HTMLCanvasElement, ImageData>();

function pictureOf(ctx: CanvasRenderingContext2D): ImageData {
  const { canvas } = ctx;
  const last = pictures.get(canvas);
  if (last !== undefined && last.width === canvas.width && last.height === canvas.height) return last;
  const picture = ctx.createImageData(canvas.width, canvas.height);
  pictures.set(canvas, picture);
  return picture;
}

/** Paints some cells anew. */
export function paintSome(ctx: CanvasRenderingContext2D, scene: Scene, places: readonly number[]): void {
  const { layout, inks, unit } = scene;
  // What is drawn over neighbours cannot be taken away alone.
  if (layout.size < MARK_SIZE) {
    paintAll(ctx, scene);
    return;
  }
  const side = Math.max(1, Math.round((layout.size - layout.gap) * unit));
  for (const place of places) {
    const at = layout.numbers[place] ?? -1;
    if (at < 0) continue;
    ctx.fillStyle = isDim(scene, place) ? inks.dim : inks.states[shownCode(scene.board, place)]!;
    ctx.fillRect(Math.round(layout.columns[at]! * layout.size * unit), Math.round(layout.rows[at]! * layout.size * unit), side, side);
  }
  if (layout.size < LETTER_FROM) return;
  beginLetters(ctx, scene);
  for (const place of places) letter(ctx, scene, place);
}

function isDim(scene: Scene, place: number): boolean {
  return scene.isFound !== null && scene.isFound[place] === 0;
}

function beginLetters(ctx: CanvasRenderingContext2D, scene: Scene): void {
  ctx.fillStyle = scene.inks.ink;
  ctx.font = `600 ${Math.round(0.62 * scene.layout.size * scene.unit)}px ${getComputedStyle(ctx.canvas).fontFamily}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
}

function letter(ctx: CanvasRenderingContext2D, scene: Scene, place: number): void {
  const { layout, unit } = scene;
  const at = layout.numbers[place] ?? -1;
  const text = LETTERS[STATES[shownCode(scene.board, place)] ?? "here"];
  if (at < 0 || text === "" || isDim(scene, place)) return;
  const middle = (layout.size - layout.gap) / 2;
  ctx.fillText(text, (layout.columns[at]! * layout.size + middle) * unit, (layout.rows[at]! * layout.size + middle + 0.5) * unit);
}

/** A colour as a pixel, red in the lowest byte as every browser's machine has it. */
export function packed(colour: string): number {
  const parts = (colour.match(/[\d.]+/g) ?? []).map(Number);
  const [red = 0, green = 0, blue = 0] = colour.startsWith("rgb") ? parts : parts.map((part) => Math.round(255 * part));
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}
