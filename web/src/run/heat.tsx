// Rank by step: one line for each rank, dark where a column is large. What one slow rank does is a line of its own.

import { useEffect, useRef, useState } from "preact/hooks";

import { question } from "../ask";
import { formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { replaceQuery } from "../route";
import { onThemeChange } from "../theme";
import type { HeatMap, RunOverview } from "../wire/types";
import { shadeOf } from "./heatscale";
import { readInks } from "./inks";
import { formatValue } from "./units";

/** Pixels of the line of a rank, at least. */
const LINE_MIN = 6;
/** The same, at most. */
const LINE_MAX = 26;
/** Pixels of the map that are shared among ranks. */
const HEIGHT_MAX = 420;
/** Pixels before the first step, for the number of the rank. */
const LABEL = 64;

export function HeatSection(props: { run: RunOverview; chosen: string | undefined; version: string; open: (step: number) => void }) {
  const { run } = props;
  const columns = run.columns.map((column) => column.name);
  const column = columns.find((name) => name === props.chosen) ?? (columns.includes("step_time") ? "step_time" : columns[0]);
  if (column === undefined) return null;
  return (
    <section class="heat">
      <div class="section-head">
        <h2>Ranks and steps</h2>
        <label class="small">
          <span class="soft">Column</span>{" "}
          <select aria-label="Column" value={column} onChange={(event) => replaceQuery(new Map([["column", event.currentTarget.value]]))}>
            {columns.map((name) => (
              <option key={name} value={name}>
                {visible(name)}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Loaded run={run} column={column} version={props.version} open={props.open} />
    </section>
  );
}

function Loaded(props: { run: RunOverview; column: string; version: string; open: (step: number) => void }) {
  const asked = question("run/heat", { address: props.run.address, column: props.column });
  const { loaded, again } = useLoaded(asked, { keepStale: true });
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) again();
    first.current = false;
  }, [props.version]);
  return <Outcome of={loaded} again={again} show={(map) => <Canvas map={map} open={props.open} />} />;
}

interface Pointed {
  readonly rank: number;
  readonly at: number;
}

function Canvas(props: { map: HeatMap; open: (step: number) => void }) {
  const { map } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const line = Math.max(LINE_MIN, Math.min(LINE_MAX, Math.floor(HEIGHT_MAX / Math.max(1, map.ranks.length))));
  useEffect(() => {
    const element = canvas.current;
    if (element === null) return undefined;
    const redraw = () => draw(element, map, line);
    redraw();
    const size = new ResizeObserver(redraw);
    size.observe(element);
    const ended = onThemeChange(redraw);
    return () => {
      size.disconnect();
      ended();
    };
  }, [map, line]);
  const find = (event: MouseEvent): Pointed | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (box === undefined) return null;
    const at = Math.floor(((event.clientX - box.left - LABEL) / (box.width - LABEL)) * map.steps.length);
    const row = Math.floor((event.clientY - box.top) / line);
    return at >= 0 && at < map.steps.length && row >= 0 && row < map.ranks.length ? { rank: row, at } : null;
  };
  const open = (event: MouseEvent) => {
    const place = find(event);
    const step = place === null ? undefined : map.steps[place.at];
    if (step !== undefined) props.open(step);
  };
  return (
    <>
      <canvas
        ref={canvas}
        class="heat-map"
        style={{ height: `${line * map.ranks.length}px` }}
        role="img"
        aria-label={`${visible(map.column)} of ${formatPlural(map.ranks.length, "rank")} by step`}
        onMouseMove={(event) => setPointed(find(event))}
        onMouseLeave={() => setPointed(null)}
        onClick={open}
      />
      <p class="heat-foot small soft number">
        <span class="heat-scale" aria-hidden="true" />
        <span>
          {map.low === null || map.high === null ? "nothing was measured" : `${formatValue(map.low, map.unit)} to ${formatValue(map.high, map.unit)}, the largest value of each cell`}
        </span>
        <span class="heat-at">{wordsAt(map, pointed)}</span>
      </p>
    </>
  );
}

function wordsAt(map: HeatMap, pointed: Pointed | null): string {
  const row = pointed === null ? undefined : map.ranks[pointed.rank];
  if (pointed === null || row === undefined) return `steps ${formatCount(map.first)} to ${formatCount(Math.max(map.end - 1, map.first))}`;
  const value = row.values[pointed.at];
  return `rank ${row.rank}, step ${formatCount(map.steps[pointed.at] ?? 0)}: ${value === null || value === undefined ? "not measured" : formatValue(value, map.unit)}`;
}

function draw(element: HTMLCanvasElement, map: HeatMap, line: number): void {
  const inks = readInks(element.parentElement ?? document.body);
  const unit = devicePixelRatio;
  const width = element.clientWidth;
  element.width = Math.round(width * unit);
  element.height = Math.round(line * map.ranks.length * unit);
  const ctx = element.getContext("2d");
  if (ctx === null) return;
  ctx.scale(unit, unit);
  ctx.font = `11px ${getComputedStyle(element).fontFamily}`;
  ctx.textBaseline = "middle";
  const cell = (width - LABEL) / Math.max(1, map.steps.length);
  const every = Math.max(1, Math.ceil(14 / line));
  map.ranks.forEach((row, number) => {
    if (number % every === 0) {
      ctx.fillStyle = inks.soft;
      ctx.fillText(`rank ${row.rank}`, 0, (number + 0.5) * line);
    }
    row.values.forEach((value, at) => {
      if (value === null) return;
      ctx.fillStyle = shadeOf(value, map.low ?? 0, map.high ?? 0, inks.heat);
      ctx.fillRect(LABEL + at * cell, number * line, Math.max(cell + 0.5, 1), line - 1);
    });
  });
}
