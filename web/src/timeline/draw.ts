// Draws the visible part of a timeline on a canvas. Pure drawing: all that it needs is in the scene.
//
// Every event is visited, but one that would fall on pixels of its row that are already painted is
// not drawn; that keeps 200,000 spans within one frame at any zoom.

import type { EventColumns } from "./recording";
import { formatCount, visible } from "../format";
import type { Palette } from "./colour";
import { AXIS_HEIGHT, ROW_HEIGHT, type Layout, type Track } from "./layout";
import { ticks, type Range } from "./range";

export interface Scene {
  readonly columns: EventColumns;
  readonly layout: Layout;
  readonly range: Range;
  readonly palette: Palette;
  /** Colour of each kind, by the kind's number in `columns.names`. */
  readonly colour: readonly string[];
  /** Number of the kind that is picked out, if one is. */
  readonly kind: number | null;
  readonly chosen: number | null;
  readonly hovered: number | null;
  /** Size of the canvas and how far it is scrolled, in CSS pixels. */
  readonly width: number;
  readonly height: number;
  readonly scroll: number;
}

/** How labels are written. */
const FONT = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
/** Pixels of a span that has a label, of the gap between ticks, and of a point. */
const LABEL_MIN_WIDTH = 34;
const TICK_WIDTH = 110;
const POINT_WIDTH = 12;
/** How much is left of what is not of the chosen kind. */
const FAINT = 0.16;

export function drawScene(canvas: CanvasRenderingContext2D, scene: Scene): void {
  canvas.clearRect(0, 0, scene.width, scene.height);
  canvas.font = FONT;
  canvas.textBaseline = "middle";
  const top = AXIS_HEIGHT - scene.scroll;
  drawGrid(canvas, scene);
  const glyph = canvas.measureText("0").width;
  for (const track of scene.layout.tracks) {
    const bottom = top + track.rowsTop + track.rowCount * ROW_HEIGHT;
    if (bottom < AXIS_HEIGHT || top + track.top > scene.height) continue;
    drawTitle(canvas, scene, track, top);
    drawTrack(canvas, scene, track, top, glyph);
  }
  for (const index of [scene.hovered, scene.chosen]) {
    if (index !== null) drawOutline(canvas, scene, index, top);
  }
  drawAxis(canvas, scene);
}

export function xOf(scene: Pick<Scene, "range" | "width">, at_ns: number): number {
  return ((at_ns - scene.range.from_ns) / (scene.range.to_ns - scene.range.from_ns)) * scene.width;
}

function drawTitle(canvas: CanvasRenderingContext2D, scene: Scene, track: Track, top: number): void {
  const count = track.order.length;
  const title = `${track.isMain ? "main thread" : "thread"} ${track.thread} · ${formatCount(count)} event${count === 1 ? "" : "s"}`;
  canvas.fillStyle = scene.palette.paper;
  canvas.fillRect(2, top + track.top + 3, canvas.measureText(title).width + 4, 18);
  canvas.fillStyle = scene.palette.soft;
  canvas.fillText(title, 4, top + track.top + 12);
}

function drawTrack(canvas: CanvasRenderingContext2D, scene: Scene, track: Track, top: number, glyph: number): void {
  const { columns, layout, range } = scene;
  const paintedTo = new Float64Array(track.rowCount).fill(-1);
  const points: Point[] = [];
  for (const index of track.order) {
    const begin = columns.time_ns[index] ?? 0;
    if (begin > range.to_ns) break;
    const end = layout.end_ns[index] ?? begin;
    if (end < range.from_ns) continue;
    const row = layout.row[index] ?? 0;
    const kind = columns.kind[index] ?? 0;
    const left = Math.max(-2, xOf(scene, begin));
    const right = Math.min(scene.width + 2, Math.max(left + 1, xOf(scene, end)));
    const faint = scene.kind !== null && scene.kind !== kind;
    if (right <= (paintedTo[row] ?? -1) && (faint || scene.kind === null)) continue;
    paintedTo[row] = Math.max(paintedTo[row] ?? -1, Math.ceil(right));
    const alpha = faint ? FAINT : 1;
    const colour = scene.colour[kind] ?? scene.palette.rest;
    const y = top + track.rowsTop + row * ROW_HEIGHT;
    if ((columns.duration_ns[index] ?? 0) < 0 && !columns.open.has(index)) {
      points.push({ x: left, y, colour, alpha });
    } else {
      canvas.globalAlpha = alpha;
      canvas.fillStyle = colour;
      drawSpan(canvas, scene, { index, left, right, y, glyph });
    }
  }
  const draw = points.length * POINT_WIDTH > scene.width ? drawTick : drawPoint;
  for (const point of points) draw(canvas, scene, point);
  canvas.globalAlpha = 1;
}

interface Point {
  readonly x: number;
  readonly y: number;
  readonly colour: string;
  readonly alpha: number;
}

/** Points lie on top of the spans of their row, with a rim so that they stand out. */
function drawPoint(canvas: CanvasRenderingContext2D, scene: Scene, point: Point): void {
  const middle = point.y + (ROW_HEIGHT - 2) / 2;
  canvas.globalAlpha = point.alpha;
  canvas.fillStyle = point.colour;
  canvas.strokeStyle = scene.palette.ink;
  canvas.lineWidth = 1;
  canvas.beginPath();
  canvas.moveTo(point.x, middle - 6);
  canvas.lineTo(point.x + 5, middle);
  canvas.lineTo(point.x, middle + 6);
  canvas.lineTo(point.x - 5, middle);
  canvas.closePath();
  canvas.fill();
  canvas.stroke();
}

/** Where points are too many to tell apart, thin lines show their density. */
function drawTick(canvas: CanvasRenderingContext2D, _scene: Scene, point: Point): void {
  canvas.globalAlpha = point.alpha;
  canvas.fillStyle = point.colour;
  canvas.fillRect(point.x, point.y, 1, ROW_HEIGHT - 2);
}

interface Box {
  readonly index: number;
  readonly left: number;
  readonly right: number;
  readonly y: number;
  readonly glyph: number;
}

function drawSpan(canvas: CanvasRenderingContext2D, scene: Scene, box: Box): void {
  const { index, left, right, y } = box;
  const { columns, palette } = scene;
  // A hair of paper between neighbours, once there is room for it.
  const width = right - left > 3 ? right - left - 1 : right - left;
  canvas.fillRect(left, y, width, ROW_HEIGHT - 2);
  if (columns.open.has(index)) {
    canvas.fillStyle = palette.paper;
    for (let x = Math.max(left, 0) + 4; x < left + width; x += 8) canvas.fillRect(x, y, 2, ROW_HEIGHT - 2);
  }
  if (width < LABEL_MIN_WIDTH) return;
  const start = Math.max(left, 0) + 5;
  const room = Math.floor((left + width - start - 4) / box.glyph);
  const name = visible(columns.names[columns.kind[index] ?? 0] ?? "");
  if (room < 3) return;
  canvas.fillStyle = palette.label;
  canvas.fillText(name.length <= room ? name : `${name.slice(0, room - 1)}…`, start, y + (ROW_HEIGHT - 2) / 2 + 0.5);
}

function drawOutline(canvas: CanvasRenderingContext2D, scene: Scene, index: number, top: number): void {
  const track = scene.layout.tracks.find((one) => one.thread === scene.columns.thread[index]);
  if (track === undefined) return;
  const left = Math.max(-4, xOf(scene, scene.columns.time_ns[index] ?? 0));
  const right = Math.min(scene.width + 4, Math.max(left + 2, xOf(scene, scene.layout.end_ns[index] ?? 0)));
  const y = top + track.rowsTop + (scene.layout.row[index] ?? 0) * ROW_HEIGHT;
  canvas.strokeStyle = index === scene.chosen ? scene.palette.accent : scene.palette.ink;
  canvas.lineWidth = index === scene.chosen ? 2 : 1;
  canvas.strokeRect(left - 1, y - 1, right - left + 1, ROW_HEIGHT);
}

function drawGrid(canvas: CanvasRenderingContext2D, scene: Scene): void {
  canvas.fillStyle = scene.palette.line;
  for (const at_ns of ticks(scene.range, scene.width / TICK_WIDTH).at_ns) {
    canvas.fillRect(Math.round(xOf(scene, at_ns)), AXIS_HEIGHT, 1, scene.height);
  }
}

function drawAxis(canvas: CanvasRenderingContext2D, scene: Scene): void {
  const { palette } = scene;
  canvas.fillStyle = palette.paper;
  canvas.fillRect(0, 0, scene.width, AXIS_HEIGHT);
  canvas.fillStyle = palette.line;
  canvas.fillRect(0, AXIS_HEIGHT - 1, scene.width, 1);
  canvas.fillStyle = palette.soft;
  const { step_ns, at_ns } = ticks(scene.range, scene.width / TICK_WIDTH);
  for (const at of at_ns) {
    const label = axisLabel(at, step_ns);
    const x = xOf(scene, at) + 4;
    if (x + canvas.measureText(label).width < scene.width) canvas.fillText(label, x, AXIS_HEIGHT / 2);
  }
}

/** One unit for the whole axis, and only the digits in which its labels differ. */
function axisLabel(at_ns: number, step_ns: number): string {
  const [unit, size] = step_ns >= 1e8 ? ["s", 1e9] : step_ns >= 1e5 ? ["ms", 1e6] : step_ns >= 1e2 ? ["µs", 1e3] : ["ns", 1];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step_ns / size) - 1e-9));
  return `${(at_ns / size).toFixed(decimals)} ${unit}`;
}
