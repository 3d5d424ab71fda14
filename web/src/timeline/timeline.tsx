// The timeline: spans by thread over time, with zoom, hover and choice. The canvas has the size of what
// is visible and is redrawn while scrolling, so the number of threads has no limit.
//
// The range lives here while the reader moves it, and goes to the address when it comes to rest.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { Recording } from "./recording";
import { visible } from "../format";
import { useKeys } from "../keys";
import { replaceQuery } from "../route";
import { onThemeChange } from "../theme";
import { readPalette } from "./colour";
import { drawScene, type Scene } from "./draw";
import { AXIS_HEIGHT, eventAt, layOut, neighbour, type Layout } from "./layout";
import { usePointer } from "./pointer";
import { clampRange, moveRange, revealIn, zoomRange, type Range } from "./range";
import { spanWords } from "./words";

/** How long a range rests before the URL says it. */
const REST_MS = 250;
/** Pixels of the drawing; more scrolls. */
const HEIGHT_MAX = 460;
/** How far from an event the pointer still finds it. */
const REACH_PX = 4;

interface TimelineProps {
  readonly recording: Recording;
  readonly colours: ReadonlyMap<string, number>;
  /** Kind that is picked out. */
  readonly kind: string | null;
  /** Index of the chosen event. */
  readonly chosen: number | null;
  readonly asked: Range | null;
}

export function Timeline(props: TimelineProps) {
  const { recording, chosen } = props;
  const layout = useMemo(() => layOut(recording), [recording]);
  const [range, setRange] = useRange(props);
  const [hover, setHover] = useState<Hover | null>(null);
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const kind = props.kind === null ? -1 : recording.timeline.names.indexOf(props.kind);
  useDrawing(frame, canvas, { ...props, layout, range, hovered: hover?.index ?? null, kindNumber: kind < 0 ? null : kind });

  const find = (x: number, y: number): number | null => {
    const box = frame.current;
    if (box === null || y < AXIS_HEIGHT) return null;
    const perPixel = (range.to_ns - range.from_ns) / box.clientWidth;
    const at_ns = range.from_ns + x * perPixel;
    return eventAt(layout, recording.timeline.time_ns, y - AXIS_HEIGHT + box.scrollTop, at_ns, REACH_PX * perPixel);
  };
  usePointer(frame, {
    range,
    setRange,
    onHover: (x, y) => setHover(x === null || y === null ? null : hoverAt(find(x, y), x, y)),
    onClick: (x, y) => choose(find(x, y)),
  });
  const middle = (range.from_ns + range.to_ns) / 2;
  const step = (range.to_ns - range.from_ns) / 5;
  const zoomIn = () => setRange(zoomRange(range, 2, middle));
  const zoomOut = () => setRange(zoomRange(range, 0.5, middle));
  const showAll = () => setRange({ from_ns: 0, to_ns: recording.length_ns });
  const walk = (by: 1 | -1) => {
    const next = neighbour(layout, recording.timeline.kind, chosen, by, kind < 0 ? null : kind);
    if (next === null) return;
    choose(next);
    setRange(revealIn(range, recording.timeline.time_ns[next] ?? 0, layout.end_ns[next] ?? 0));
  };
  useKeys("Timeline", [
    { keys: "+", says: "Zoom in", run: zoomIn },
    { keys: "-", says: "Zoom out", run: zoomOut },
    { keys: "0", says: "Show the whole recording", run: showAll },
    { keys: "ArrowLeft", says: "Earlier", run: () => setRange(moveRange(range, -step)) },
    { keys: "ArrowRight", says: "Later", run: () => setRange(moveRange(range, step)) },
    { keys: "n", says: "Choose the next event of the thread", run: () => walk(1) },
    { keys: "p", says: "Choose the previous event of the thread", run: () => walk(-1) },
  ]);
  return (
    <section aria-label="Timeline">
      <div class="section-head">
        <h2>Timeline</h2>
        <div class="buttons">
          <button type="button" onClick={zoomOut} aria-label="Zoom out" title="Zoom out (-)">
            −
          </button>
          <button type="button" onClick={zoomIn} aria-label="Zoom in" title="Zoom in (+)">
            +
          </button>
          <button type="button" onClick={showAll} title="Show the whole recording (0)">
            All
          </button>
        </div>
      </div>
      <div class="timeline" ref={frame}>
        <div class="timeline-room" style={{ height: `${layout.height + AXIS_HEIGHT}px` }}>
          <canvas ref={canvas} role="img" aria-label="Spans by thread over time; the table below holds the totals" />
        </div>
      </div>
      {hover !== null && <Tip recording={recording} hover={hover} frame={frame.current} />}
      <p class="soft small">Drag to move, hold Ctrl and scroll to zoom, click an event for its fields.</p>
    </section>
  );
}

interface Hover {
  readonly index: number;
  readonly x: number;
  readonly y: number;
}

function Tip(props: { recording: Recording; hover: Hover; frame: HTMLElement | null }) {
  const { recording, hover, frame } = props;
  const { names, kind } = recording.timeline;
  const box = frame?.getBoundingClientRect();
  if (box === undefined) return null;
  const onRight = hover.x > box.width / 2;
  const across = onRight ? { right: `${innerWidth - box.left - hover.x + 14}px` } : { left: `${box.left + hover.x + 14}px` };
  return (
    <div class="tip" role="status" style={{ ...across, top: `${box.top + hover.y + 16}px` }}>
      <strong>{visible(names[kind[hover.index] ?? 0] ?? "")}</strong>
      <span>{spanWords(recording, hover.index)}</span>
    </div>
  );
}

function choose(index: number | null): void {
  replaceQuery(new Map([["event", index === null ? null : String(index)]]));
}

function hoverAt(index: number | null, x: number, y: number): Hover | null {
  return index === null ? null : { index, x, y };
}

/** The range shown: from the address at first and when that changes, and back to it at rest. */
function useRange(props: TimelineProps): [Range, (wanted: Range) => void] {
  const { recording, asked } = props;
  const whole: Range = { from_ns: 0, to_ns: recording.length_ns };
  const [range, setRange] = useState(() => clampRange(asked ?? whole, recording.length_ns));
  const timer = useRef(0);
  useEffect(() => setRange(clampRange(asked ?? whole, recording.length_ns)), [recording, asked?.from_ns, asked?.to_ns]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const move = (wanted: Range) => {
    const next = clampRange(wanted, recording.length_ns);
    setRange(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      const isWhole = next.from_ns <= 0 && next.to_ns >= recording.length_ns;
      const words: [string, string | null][] = [
        ["from", isWhole ? null : String(Math.round(next.from_ns))],
        ["to", isWhole ? null : String(Math.round(next.to_ns))],
      ];
      replaceQuery(new Map(words));
    }, REST_MS);
  };
  return [range, move];
}

interface Drawing extends TimelineProps {
  readonly layout: Layout;
  readonly range: Range;
  readonly hovered: number | null;
  readonly kindNumber: number | null;
}

/** Draws after every change, and when the size, the scroll position or the theme changes. */
function useDrawing(frame: { current: HTMLElement | null }, canvas: { current: HTMLCanvasElement | null }, drawing: Drawing): void {
  const latest = useRef(drawing);
  latest.current = drawing;
  const draw = () => {
    if (frame.current !== null && canvas.current !== null) paint(frame.current, canvas.current, latest.current);
  };
  useEffect(() => {
    const box = frame.current;
    const size = new ResizeObserver(draw);
    if (box !== null) size.observe(box);
    box?.addEventListener("scroll", draw, { passive: true });
    const end = onThemeChange(draw);
    return () => {
      size.disconnect();
      box?.removeEventListener("scroll", draw);
      end();
    };
  }, []);
  useEffect(draw);
}

function paint(frame: HTMLElement, canvas: HTMLCanvasElement, drawing: Drawing): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const { recording, layout, colours } = drawing;
  const width = frame.clientWidth;
  const height = Math.min(HEIGHT_MAX, layout.height + AXIS_HEIGHT);
  const density = devicePixelRatio;
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  context.setTransform(density, 0, 0, density, 0, 0);
  const palette = readPalette(frame);
  const colour = recording.timeline.names.map((name) => palette.kinds[colours.get(name) ?? -1] ?? palette.rest);
  const scene: Scene = {
    columns: recording.timeline,
    layout,
    range: drawing.range,
    palette,
    colour,
    kind: drawing.kindNumber,
    chosen: drawing.chosen,
    hovered: drawing.hovered,
    width,
    height,
    scroll: frame.scrollTop,
  };
  drawScene(context, scene);
}
