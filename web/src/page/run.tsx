// A run: why it is slow, its curves, where its time went, and what happened to it. The zoom, the smoothing and the column
// of the map are in the URL, so that a copied link shows the same.

import { useEffect, useMemo, useState } from "preact/hooks";

import { question } from "../ask";
import { formatCount, formatPlural, formatWhen, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { EmptyState, Outcome } from "../part/state";
import { addressRoute, goTo, replaceQuery } from "../route";
import { folderOf, runName, runsAddress, stepAddress } from "../run/address";
import { Chart } from "../run/chart";
import { useFollowing } from "../run/follow";
import { Headline, Tiles } from "../run/headline";
import { HeatSection } from "../run/heat";
import { Ledger } from "../run/ledger";
import { marksOf } from "../run/marks";
import { weightOf } from "../run/smooth";
import { Happenings } from "../run/tables";
import type { CurveSet, RunOverview } from "../wire/types";

type Query = ReadonlyMap<string, string>;
/** What the key for smoothing switches to. */
const SMOOTH = "0.9";
const STATES: Readonly<Record<RunOverview["state"], string>> = { running: "running", ended: "ended", failed: "failed", silent: "no end recorded" };

export function RunPage(props: { address: string; query: Query }) {
  const { loaded, again } = useLoaded(question("run", { address: props.address }), { keepStale: true });
  useKeys("This page", [{ keys: "r", says: "Load the run again", run: again }]);
  return (
    <div class="run">
      <Outcome of={loaded} again={again} show={(run) => <Contents run={run} query={props.query} again={again} />} />
    </div>
  );
}

function Contents(props: { run: RunOverview; query: Query; again: () => void }) {
  const { run, query } = props;
  const [all, setAll] = useState(false);
  useFollowing(run, props.again);
  const open = (step: number) => goTo(stepAddress(run.address, step));
  return (
    <>
      <Head run={run} />
      <Headline diagnosis={run.diagnosis} />
      <Tiles run={run} />
      {run.faults.length > 0 && (
        <ul class="notices">
          {run.faults.map((fault) => (
            <li key={fault}>{visible(fault)}</li>
          ))}
        </ul>
      )}
      <Curves run={run} query={query} open={open} />
      <Ledger ledger={run.ledger} />
      <Happenings run={run} all={all} showAll={() => setAll(true)} />
      <HeatSection run={run} chosen={query.get("column")} version={run.signature} open={open} />
      <div class="foot">
        {run.commands.map((command) => (
          <Command key={command} text={command} />
        ))}
      </div>
    </>
  );
}

function Head(props: { run: RunOverview }) {
  const { run } = props;
  const began = run.marks.lives[0]?.began_s ?? null;
  const steps = run.last_step === null ? "no steps" : `step ${formatCount(run.last_step)}`;
  return (
    <header class="head head-line">
      <h1>{visible(run.name)}</h1>
      <span class={`pill ${run.state}`}>{STATES[run.state]}</span>
      <p class="facts">
        <span>{steps}</span>
        <span>{formatPlural(run.ranks.length, "rank")}</span>
        <span>{formatPlural(run.marks.lives.length, "life", "lives")}</span>
        {began !== null && <span>since {formatWhen(1000 * began)}</span>}
      </p>
      <span class="head-links">
        <a class="button" href={addressRoute(runsAddress(folderOf(runName(run.address))))} title="The runs of its folder, side by side (f)">
          all runs
        </a>
        <a class="button" href={addressRoute(run.address, new Map([["view", "batch"]]))} title="What it trains on, at its newest step (b)">
          batch
        </a>
      </span>
    </header>
  );
}

function Curves(props: { run: RunOverview; query: Query; open: (step: number) => void }) {
  const { run, query } = props;
  const [first, end] = zoomOf(query);
  const smooth = weightOf(query.get("smooth"));
  const { loaded, again } = useLoaded(question("run/curves", { address: run.address, first, end }), { keepStale: true });
  const [seen, setSeen] = useState(run.signature);
  useEffect(() => {
    if (seen === run.signature) return;
    setSeen(run.signature);
    again();
  }, [run.signature]);
  // Charts are drawn anew when they get others.
  const marks = useMemo(() => marksOf(run.marks), [run.marks]);
  const zoom = (from: number, to: number) => replaceQuery(new Map([["from", String(from)], ["to", String(to)]]));
  const reset = () => replaceQuery(new Map([["from", null], ["to", null]]));
  const setSmooth = (text: string | null) => replaceQuery(new Map([["smooth", text]]));
  useKeys("This page", [
    { keys: "s", says: "Smooth the curves, or not", run: () => setSmooth(smooth > 0 ? null : SMOOTH) },
    { keys: "0", says: "Show all steps", run: reset },
    { keys: "f", says: "Show the runs of its folder", run: () => goTo(runsAddress(folderOf(runName(run.address)))) },
    { keys: "b", says: "Open the batch of the newest step", run: () => goTo(run.address, new Map([["view", "batch"]])) },
  ]);
  return (
    <section class="curves">
      <div class="section-head">
        <h2>Curves</h2>
        <Legend run={run} />
        <span class="tools">
          <label class="small" title="Smoothing (s)">
            <span class="soft">Smoothing</span>
            <input type="range" min="0" max="0.98" step="0.02" value={String(smooth)} aria-label="Smoothing" onInput={(event) => setSmooth(Number(event.currentTarget.value) > 0 ? event.currentTarget.value : null)} />
          </label>
          <button type="button" onClick={reset} disabled={first === null} title="Show all steps (0)">
            All steps
          </button>
        </span>
      </div>
      <Outcome of={loaded} again={again} show={(set) => <ChartGrid set={set} smooth={smooth} marks={marks} zoom={zoom} reset={reset} open={props.open} />} />
    </section>
  );
}

interface GridProps {
  readonly set: CurveSet;
  readonly smooth: number;
  readonly marks: ReturnType<typeof marksOf>;
  readonly zoom: (first: number, end: number) => void;
  readonly reset: () => void;
  readonly open: (step: number) => void;
}

function ChartGrid(props: GridProps) {
  const { set, ...rest } = props;
  useEffect(() => {
    // Two frames later everything is on the screen; benchmarks read the mark.
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("run-painted")));
  }, [set]);
  if (set.curves.length === 0) {
    return (
      <EmptyState title="No steps are recorded yet">
        <p>Curves appear with the first step that ends.</p>
      </EmptyState>
    );
  }
  return (
    <>
      <div class="charts" data-steps={`${set.first}:${set.end}`}>
        {set.curves.map((curve) => (
          <Chart key={curve.name} set={set} curve={curve} {...rest} />
        ))}
      </div>
      <p class="small soft">
        {set.is_exact ? "Every step is drawn." : `Lines are means of ${formatCount(Math.round((set.end - set.first) / set.steps.length))} steps each, bands go from the smallest to the largest value.`} Drag to zoom, click to
        open the batch of a step.
        {set.left_out > 0 && ` ${formatPlural(set.left_out, "logged scalar")} more are not drawn.`}
      </p>
    </>
  );
}

function Legend(props: { run: RunOverview }) {
  const { marks } = props.run;
  const kinds = [
    marks.lives.length > 1 && (["life", "a life begins"] as const),
    marks.incidents.length > 0 && (["incident", "incident"] as const),
    marks.checkpoints.length > 0 && (["checkpoint", "checkpoint"] as const),
    marks.skips.length > 0 && (["skip", "left out"] as const),
  ].filter((kind) => kind !== false);
  return (
    <span class="legend small soft">
      {kinds.map(([kind, says]) => (
        <span key={kind}>
          <i class={`mark-${kind}`} /> {says}
        </span>
      ))}
    </span>
  );
}

function zoomOf(query: Query): [number | null, number | null] {
  const [first, end] = ["from", "to"].map((name) => (/^\d{1,15}$/.test(query.get(name) ?? "") ? Number(query.get(name)) : null));
  return first !== null && end !== null && first !== undefined && end !== undefined && first < end ? [first, end] : [null, null];
}
