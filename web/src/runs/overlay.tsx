// One curve of several runs, over each other: the same steps, one colour for each run.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { question, wordsOf } from "../ask";
import { formatCount, visible } from "../format";
import { colourOf, faded, readInks } from "../run/inks";
import { smoothed } from "../run/smooth";
import { formatTick, formatValue } from "../run/units";
import { onThemeChange } from "../theme";
import type { CurveSet, ListedRun, RunCurve } from "../wire/types";
import { joined } from "./choice";

/** Pixels of the plot, as in the style sheet. */
const HEIGHT = 300;

/** A run's curve as it was answered. */
interface Drawn {
  readonly run: ListedRun;
  readonly set: CurveSet;
  readonly curve: RunCurve;
}

/** The curve of every run that has it; asked for again when a run has gone on. */
function useCurves(runs: readonly ListedRun[], name: string): { readonly drawn: readonly Drawn[]; readonly problem: string } {
  const [state, setState] = useState<{ drawn: readonly Drawn[]; problem: string }>({ drawn: [], problem: "" });
  const key = runs.map((run) => `${run.address} ${run.summary?.step} ${run.summary?.wall_ns}`).join("\n");
  useEffect(() => {
    const request = new AbortController();
    const ask = async (run: ListedRun): Promise<Drawn | null> => {
      const set = await question("run/curves", { address: run.address, curve: name }).ask(request.signal);
      const curve = set.curves.find((one) => one.name === name);
      return curve === undefined ? null : { run, set, curve };
    };
    void Promise.allSettled(runs.map(ask)).then((answers) => {
      if (request.signal.aborted) return;
      const failed = answers.find((answer) => answer.status === "rejected");
      const drawn = answers.flatMap((answer) => (answer.status === "fulfilled" && answer.value !== null ? [answer.value] : []));
      setState({ drawn, problem: failed === undefined ? "" : wordsOf(failed.reason).message });
    });
    return () => request.abort();
  }, [key, name]);
  return state;
}

export function Overlay(props: { runs: readonly ListedRun[]; curve: string; smooth: number; inkOf: (run: ListedRun) => number }) {
  const { runs, curve, smooth } = props;
  const { drawn, problem } = useCurves(runs, curve);
  const host = useRef<HTMLDivElement>(null);
  const said = useRef<HTMLSpanElement>(null);
  useEffect(() => {
    const element = host.current;
    if (element === null || drawn.length === 0) return undefined;
    let plot: uPlot | null = null;
    const draw = () => {
      plot?.destroy();
      plot = makePlot(element, drawn, smooth, props.inkOf, said.current);
    };
    draw();
    const size = new ResizeObserver(() => plot?.width !== element.clientWidth && plot?.setSize({ width: element.clientWidth, height: HEIGHT }));
    size.observe(element);
    const ended = onThemeChange(draw);
    return () => {
      size.disconnect();
      ended();
      plot?.destroy();
    };
  }, [drawn, smooth]);
  return (
    <figure class="chart overlay" data-curve={curve} data-runs={drawn.length}>
      <figcaption>
        <h3>{visible(drawn[0]?.curve.title ?? curve)}</h3>
        <span class="chart-value number" ref={said} />
      </figcaption>
      {drawn.length === 0 ? <p class="soft small">{problem === "" ? "None of the chosen runs has this curve." : visible(problem)}</p> : <div class="overlay-plot" ref={host} role="img" aria-label={`${visible(curve)} of ${drawn.length} runs over steps`} />}
      <p class="chart-lines">
        {drawn.map(({ run }) => (
          <span key={run.address}>
            <i class={`ink-run-${props.inkOf(run)}`} /> {visible(run.name)}
          </span>
        ))}
      </p>
    </figure>
  );
}

function makePlot(element: HTMLElement, drawn: readonly Drawn[], smooth: number, inkOf: (run: ListedRun) => number, said: HTMLElement | null): uPlot {
  const inks = readInks(element);
  const { steps, values } = joined(drawn.map(({ set, curve }) => ({ steps: set.steps, values: curve.lines[0]?.values ?? [] })));
  const unit = drawn[0]?.curve.unit ?? "number";
  const font = `11px ${getComputedStyle(element).fontFamily}`;
  const axis: uPlot.Axis = { stroke: inks.soft, font, grid: { stroke: inks.grid, width: 1 }, ticks: { show: false } };
  const colours = drawn.map(({ run }) => colourOf(element, `ink-run-${inkOf(run)}`));
  const say = (at: number | null) => {
    if (said === null) return;
    const step = at === null ? undefined : steps[at];
    said.textContent = step === undefined ? "" : `step ${formatCount(step)}  ${values.map((column) => near(column, at ?? 0, unit)).join(" · ")}`;
  };
  const series: uPlot.Series[] = [{}];
  const data: (readonly (number | null)[])[] = [steps];
  values.forEach((column, number) => {
    const colour = colours[number] ?? inks.ink;
    if (smooth > 0) {
      data.push(column);
      series.push({ stroke: faded(colour, 0.25), width: 1, points: { show: false }, spanGaps: true });
    }
    data.push(smooth > 0 ? smoothed(column, smooth) : column);
    series.push({ stroke: colour, width: 1.6, points: { show: steps.length <= 60, size: 4, fill: colour, stroke: colour }, spanGaps: true });
  });
  const first = steps[0] ?? 0;
  const options: uPlot.Options = {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    scales: { x: { time: false, range: (_, low, high) => [low ?? first, Math.max(high ?? first, first + 1)] } },
    axes: [
      { ...axis, size: 24, values: (_, splits) => splits.map((step) => (Number.isInteger(step) ? formatTick(step, "number") : "")) },
      { ...axis, size: 58, gap: 6, values: (_, splits) => splits.map((value) => formatTick(value, unit)), space: 28 },
    ],
    cursor: { drag: { x: true, y: false }, points: { size: 6 }, y: false },
    series,
    hooks: { setCursor: [(self) => say(self.cursor.idx ?? null)] },
  };
  return new uPlot(options, data as uPlot.AlignedData, element);
}

/** The value of a line at a place, or the one before it. */
function near(column: readonly (number | null)[], at: number, unit: string): string {
  for (let place = at; place >= 0; place -= 1) {
    const value = column[place];
    if (value !== null && value !== undefined) return formatValue(value, unit);
  }
  return "–";
}
