// One chart over steps. Dragging zooms, a click opens the batch of the step, the cursor is shared by all charts of the page.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import { formatCount, visible } from "../format";
import { onThemeChange } from "../theme";
import type { CurveSet, RunCurve } from "../wire/types";
import { faded, readInks, type Inks } from "./inks";
import { marksNear, type Mark } from "./marks";
import { smoothed } from "./smooth";
import { formatTick, formatValue } from "./units";

/** Pixels of a chart, as in the style sheet. */
const HEIGHT = 148;
/** A press that moves less is a click. */
const CLICK_PX = 4;
/** Charts that share a cursor. */
const SYNC = "run";

interface ChartProps {
  readonly set: CurveSet;
  readonly curve: RunCurve;
  readonly marks: readonly Mark[];
  readonly smooth: number;
  readonly zoom: (first: number, end: number) => void;
  readonly reset: () => void;
  readonly open: (step: number) => void;
}

export function Chart(props: ChartProps) {
  const { set, curve } = props;
  const host = useRef<HTMLDivElement>(null);
  const said = useRef<HTMLSpanElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = host.current;
    if (element === null) return undefined;
    const draw = () => {
      plot.current?.destroy();
      plot.current = makePlot(element, latest, (at) => say(said.current, latest.current, at));
      say(said.current, latest.current, null);
    };
    draw();
    // It speaks up at once, when nothing has changed yet.
    const size = new ResizeObserver(() => plot.current?.width !== element.clientWidth && plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    size.observe(element);
    const ended = onThemeChange(draw);
    return () => {
      size.disconnect();
      ended();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [set, curve, props.smooth, props.marks]);
  const lost = curve.lines.reduce((sum, line) => sum + line.not_finite, 0);
  return (
    <figure class="chart" data-curve={curve.name}>
      <figcaption>
        <h3 title={curve.says}>{visible(curve.title)}</h3>
        <span class="chart-value number" ref={said} />
      </figcaption>
      <div class="chart-plot" ref={host} tabIndex={0} role="img" aria-label={`${visible(curve.title)} over steps`} onKeyDown={(event) => keys(event, plot.current, latest.current)} />
      {lost > 0 && <p class="cut">{formatCount(lost)} values are not finite and are not drawn.</p>}
      {curve.lines.length > 1 && (
        <p class="chart-lines">
          {curve.lines.map((line, number) => (
            <span key={line.label}>
              <i class={`ink-line-${number}`} /> {visible(line.label)}
            </span>
          ))}
        </p>
      )}
    </figure>
  );
}

/** The data of a plot: x, then of every line its ends, its values, and where it is smoothed that. */
function dataOf(props: ChartProps): { data: uPlot.AlignedData; series: uPlot.Series[]; bands: uPlot.Band[] } {
  const data: (readonly (number | null)[])[] = [props.set.steps];
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  const inks = readInks(document.body);
  props.curve.lines.forEach((line, number) => {
    const colour = inks.lines[number % inks.lines.length] ?? inks.ink;
    if (line.low !== null && line.high !== null) {
      bands.push({ series: [data.length + 1, data.length], fill: faded(colour, 0.16) });
      data.push(line.low, line.high);
      series.push(lineOf("transparent", 0), lineOf("transparent", 0));
    }
    const few = line.values.filter((value) => value !== null).length <= 60;
    data.push(line.values);
    series.push({ ...lineOf(props.smooth > 0 ? faded(colour, 0.28) : colour, 1.4), points: { show: few, size: 4, fill: colour, stroke: colour }, spanGaps: few });
    if (props.smooth > 0) {
      data.push(smoothed(line.values, props.smooth));
      series.push({ ...lineOf(colour, 1.8), spanGaps: few });
    }
  });
  return { data: data as uPlot.AlignedData, series, bands };
}

function lineOf(stroke: string, width: number): uPlot.Series {
  return { stroke, width, points: { show: false } };
}

function makePlot(element: HTMLElement, latest: { current: ChartProps }, moved: (at: number | null) => void): uPlot {
  const inks = readInks(element);
  const { data, series, bands } = dataOf(latest.current);
  const { unit } = latest.current.curve;
  const font = `11px ${getComputedStyle(element).fontFamily}`;
  const axis: uPlot.Axis = { stroke: inks.soft, font, grid: { stroke: inks.grid, width: 1 }, ticks: { show: false } };
  let pressed = 0;
  const options: uPlot.Options = {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    scales: { x: { time: false, range: () => rangeOf(latest.current.set) }, y: { range: (_, low, high) => roomFor(low, high, unit) } },
    axes: [
      { ...axis, size: 24, values: (_, splits) => splits.map((step) => (Number.isInteger(step) ? formatTick(step, "number") : "")) },
      { ...axis, size: 58, gap: 6, values: (_, splits) => splits.map((value) => formatTick(value, unit)), space: 28 },
    ],
    cursor: { sync: { key: SYNC, setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 6 }, y: false, bind: { dblclick: () => null } },
    series,
    bands,
    hooks: {
      setCursor: [(self) => moved(self.cursor.idx ?? null)],
      setSelect: [
        (self) => {
          if (self.select.width < CLICK_PX) return;
          const first = Math.max(0, Math.floor(self.posToVal(self.select.left, "x")));
          const end = Math.ceil(self.posToVal(self.select.left + self.select.width, "x"));
          self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          if (end > first) latest.current.zoom(first, end);
        },
      ],
      drawClear: [(self) => drawMarks(self, latest.current.marks, inks)],
    },
  };
  const made = new uPlot(options, data, element);
  made.over.addEventListener("mousedown", (event) => {
    pressed = event.clientX;
  });
  made.over.addEventListener("click", (event) => {
    const step = made.cursor.idx === null || made.cursor.idx === undefined ? null : latest.current.set.steps[made.cursor.idx];
    if (Math.abs(event.clientX - pressed) < CLICK_PX && step !== null && step !== undefined) latest.current.open(step);
  });
  return made;
}

function rangeOf(set: CurveSet): [number, number] {
  return [set.first, Math.max(set.end - 1, set.first + 1)];
}

/** Ends of the value axis: some room, never below zero for what cannot be negative, and never above all of it for a share. */
function roomFor(low: number | null, high: number | null, unit: string): [number, number] {
  if (low === null || high === null) return [0, 1];
  const room = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
  const positive = unit !== "number" || low >= 0;
  const bottom = positive ? Math.max(0, low - room) : low - room;
  return [unit === "number" ? bottom : Math.min(bottom, 0), unit === "share" ? Math.min(1, high + room) : high + room];
}

function drawMarks(self: uPlot, marks: readonly Mark[], inks: Inks): void {
  const { ctx } = self;
  const { left, top, width, height } = self.bbox;
  const unit = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const mark of marks) {
    const x = Math.round(self.valToPos(mark.step, "x", true));
    if (mark.kind === "skip") {
      ctx.fillStyle = faded(inks.skip, 0.22);
      ctx.fillRect(x, top, Math.max(2 * unit, self.valToPos(mark.end, "x", true) - x), height);
    } else if (mark.kind === "checkpoint") {
      ctx.fillStyle = inks.soft;
      ctx.fillRect(x, top + height - 5 * unit, unit, 5 * unit);
    } else {
      const colour = mark.kind === "life" ? inks.life : inks.incident;
      ctx.strokeStyle = faded(colour, 0.75);
      ctx.lineWidth = unit;
      ctx.setLineDash(mark.kind === "life" ? [4 * unit, 3 * unit] : []);
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + height);
      ctx.stroke();
    }
  }
  ctx.restore();
}

/** The value under the cursor, or else the last one; near a mark also what it is. */
function say(element: HTMLElement | null, props: ChartProps, at: number | null): void {
  if (element === null) return;
  const { set, curve, marks } = props;
  const texts = curve.lines.map((line) => {
    const place = at ?? lastKnown(line.values);
    const value = line.values[place];
    return value === null || value === undefined ? "–" : formatValue(value, curve.unit);
  });
  const step = at === null ? undefined : set.steps[at];
  const reach = (set.end - set.first) / 120;
  const near = step === undefined ? [] : marksNear(marks, step, reach).slice(0, 2);
  element.textContent = [...(step === undefined ? [] : [`step ${formatCount(step)}`]), texts.join(" · "), ...near.map((mark) => visible(mark.says))].join("  ");
}

function lastKnown(values: readonly (number | null)[]): number {
  let at = values.length - 1;
  while (at > 0 && values[at] === null) at -= 1;
  return at;
}

/** Arrows move the cursor, Enter opens the batch, + and - zoom. */
function keys(event: KeyboardEvent, plot: uPlot | null, props: ChartProps): void {
  if (plot === null || event.ctrlKey || event.metaKey || event.altKey) return;
  const { steps } = props.set;
  const at = plot.cursor.idx ?? steps.length - 1;
  const move = (to: number) => {
    const held = Math.max(0, Math.min(steps.length - 1, to));
    const left = plot.valToPos(steps[held] ?? 0, "x");
    // The third argument, which uPlot's types leave out, tells it to the other charts.
    (plot.setCursor as (place: { left: number; top: number }, says: boolean, tells: boolean) => void)({ left, top: 1 }, true, true);
  };
  const actions: Readonly<Record<string, () => void>> = {
    ArrowLeft: () => move(at - (event.shiftKey ? 10 : 1)),
    ArrowRight: () => move(at + (event.shiftKey ? 10 : 1)),
    Enter: () => steps[at] !== undefined && props.open(steps[at]),
    "+": () => zoomAround(props, steps[at] ?? 0),
    "-": props.reset,
  };
  const action = actions[event.key];
  if (action === undefined || steps.length === 0) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

function zoomAround(props: ChartProps, step: number): void {
  const quarter = Math.max(2, Math.round((props.set.end - props.set.first) / 4));
  props.zoom(Math.max(props.set.first, step - quarter), Math.min(props.set.end, step + quarter));
}
