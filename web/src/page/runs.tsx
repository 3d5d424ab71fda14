// The runs of a folder side by side: a table that is filtered, sorted and grouped, and one curve of up to ten of them. All of it is in the
// URL, so that a copied link shows the same.

import { useEffect } from "preact/hooks";

import { question } from "../ask";
import { formatCount, formatPlural, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { matches, SearchBox, useSearch } from "../part/search";
import { EmptyState, Outcome } from "../part/state";
import { addressRoute, replaceQuery } from "../route";
import { weightOf } from "../run/smooth";
import { formatMeasured } from "../run/units";
import { curvesOf, drawnOf, fieldsOf, formatNames, grouped, numberOf, OVERLAID_MAX, parseNames, pauseOf, sorted, textsOf, type Column } from "../runs/choice";
import { Overlay } from "../runs/overlay";
import type { ListedRun, RunList } from "../wire/types";

type Query = ReadonlyMap<string, string>;

interface Head {
  readonly column: Column;
  readonly title: string;
  readonly unit: string;
}

/** Numbers of the table, in the order of its columns. */
const HEADS: readonly Head[] = [
  { column: "step", title: "Step", unit: "number" },
  { column: "loss", title: "Loss", unit: "number" },
  { column: "tokens_per_s", title: "Tokens / s", unit: "rate" },
  { column: "p50_ns", title: "Step, median", unit: "ns" },
  { column: "p99_ns", title: "Step, 99 %", unit: "ns" },
  { column: "mfu", title: "MFU", unit: "share" },
  { column: "goodput", title: "Goodput", unit: "share" },
  { column: "memory", title: "Memory", unit: "bytes" },
];
/** What a run does, in words. */
const STATES = { running: "running", ended: "ended", failed: "failed", silent: "no end recorded" } as const;

export function RunsPage(props: { address: string; query: Query }) {
  const { loaded, again } = useLoaded(question("runs", { address: props.address }), { keepStale: true });
  useKeys("This page", [{ keys: "r", says: "Read the runs again", run: again }]);
  const failures = loaded.phase === "failed" ? 1 : 0;
  useEffect(() => {
    if (loaded.phase !== "ready") return undefined;
    const look = () => (document.visibilityState === "visible" ? again() : (timer = setTimeout(look, pauseOf(loaded.value, 1))));
    let timer = setTimeout(look, pauseOf(loaded.value, failures));
    return () => clearTimeout(timer);
  }, [loaded]);
  return (
    <div class="run runs">
      <Outcome of={loaded} again={again} show={(list) => <Contents list={list} query={props.query} />} />
    </div>
  );
}

function Contents(props: { list: RunList; query: Query }) {
  const { list, query } = props;
  const search = useSearch(query, "find");
  if (list.runs.length === 0) {
    return (
      <EmptyState title="There are no runs in this folder">
        <p>
          None below <code>{visible(list.folder)}</code>. A run appears as soon as <code>penstock.Run</code> has made its directory.
        </p>
      </EmptyState>
    );
  }
  const [column, falling] = orderOf(query.get("sort"));
  const found = sorted(list.runs.filter((run) => matches(search.typed, textsOf(run))), column, falling);
  const curves = curvesOf(list.runs);
  const curve = query.get("curve") ?? (curves.includes("loss") ? "loss" : (curves[0] ?? "loss"));
  const chosen = parseNames(query.get("over"));
  const drawn = drawnOf(chosen === null ? found : list.runs, chosen, curve);
  const inkOf = (run: ListedRun) => Math.max(0, drawn.findIndex((one) => one.name === run.name));
  return (
    <>
      <header class="head head-line">
        <h1>{visible(list.folder)}</h1>
        <p class="facts">
          <span>{formatPlural(list.runs.length, "run")}</span>
          {list.running > 0 && <span>{formatCount(list.running)} running</span>}
          {list.pending > 0 && <span role="status">reading {formatCount(list.pending)} more…</span>}
          {list.left_out > 0 && <span>{formatCount(list.left_out)} folders or runs are not listed</span>}
        </p>
      </header>
      <Plot list={list} query={query} curve={curve} curves={curves} drawn={drawn} inkOf={inkOf} />
      <Table list={list} query={query} found={found} search={search} drawn={drawn} inkOf={inkOf} isChosen={chosen !== null} />
    </>
  );
}

interface PlotProps {
  readonly list: RunList;
  readonly query: Query;
  readonly curve: string;
  readonly curves: readonly string[];
  readonly drawn: readonly ListedRun[];
  readonly inkOf: (run: ListedRun) => number;
}

function Plot(props: PlotProps) {
  const smooth = weightOf(props.query.get("smooth"));
  const setSmooth = (text: string | null) => replaceQuery(new Map([["smooth", text]]));
  useKeys("This page", [{ keys: "s", says: "Smooth the curves, or not", run: () => setSmooth(smooth > 0 ? null : "0.9") }]);
  return (
    <section class="curves">
      <div class="section-head">
        <h2>{formatPlural(props.drawn.length, "run")} over each other</h2>
        <span class="tools">
          <label class="small">
            <span class="soft">Curve</span>
            <select value={props.curve} aria-label="Curve" onChange={(event) => replaceQuery(new Map([["curve", event.currentTarget.value]]))}>
              {[...new Set([...props.curves, props.curve])].map((name) => (
                <option key={name} value={name}>
                  {visible(name)}
                </option>
              ))}
            </select>
          </label>
          <label class="small" title="Smoothing (s)">
            <span class="soft">Smoothing</span>
            <input type="range" min="0" max="0.98" step="0.02" value={String(smooth)} aria-label="Smoothing" onInput={(event) => setSmooth(Number(event.currentTarget.value) > 0 ? event.currentTarget.value : null)} />
          </label>
          <button type="button" disabled={props.query.get("over") === undefined} onClick={() => replaceQuery(new Map([["over", null]]))}>
            Draw the first
          </button>
        </span>
      </div>
      <Overlay runs={props.drawn} curve={props.curve} smooth={smooth} inkOf={props.inkOf} />
    </section>
  );
}

interface TableProps {
  readonly list: RunList;
  readonly query: Query;
  readonly found: readonly ListedRun[];
  readonly search: ReturnType<typeof useSearch>;
  readonly drawn: readonly ListedRun[];
  readonly inkOf: (run: ListedRun) => number;
  readonly isChosen: boolean;
}

function Table(props: TableProps) {
  const { list, found, drawn } = props;
  const [column, falling] = orderOf(props.query.get("sort"));
  const field = props.query.get("group") ?? null;
  const { differing, equal } = fieldsOf(list.runs);
  const sort = (by: Column) => replaceQuery(new Map([["sort", by === column && !falling ? `-${by}` : by]]));
  const toggle = (run: ListedRun) => {
    const names = drawn.map((one) => one.name);
    const next = names.includes(run.name) ? names.filter((name) => name !== run.name) : [...names, run.name].slice(-OVERLAID_MAX);
    replaceQuery(new Map([["over", formatNames(next)]]));
  };
  const title = (by: Column, words: string, left = false) => (
    <th class={left ? "left" : undefined} aria-sort={by === column ? (falling ? "descending" : "ascending") : undefined}>
      <button type="button" class="quiet sort" onClick={() => sort(by)}>
        {words}
      </button>
    </th>
  );
  return (
    <section>
      <div class="section-head">
        <h2>Runs</h2>
        <SearchBox search={props.search} label="Filter: words of names, states, diagnoses, field=value" />
        <span class="tools">
          <label class="small">
            <span class="soft">Group by</span>
            <select value={field ?? ""} aria-label="Group by" onChange={(event) => replaceQuery(new Map([["group", event.currentTarget.value === "" ? null : event.currentTarget.value]]))}>
              <option value="">nothing</option>
              <Options label="in which they differ" names={differing} />
              <Options label="the same in all" names={equal} />
            </select>
          </label>
        </span>
      </div>
      {props.search.typed !== "" && (
        <p class="soft small" role="status">
          {formatPlural(found.length, "run")} of {formatCount(list.runs.length)}.
        </p>
      )}
      <div class="wide">
        <table class="list">
          <thead>
            <tr>
              <th aria-label="Drawn" />
              {title("name", "Run", true)}
              {title("state", "State", true)}
              {HEADS.map((head) => title(head.column, head.title))}
              <th class="left">Diagnosis</th>
            </tr>
          </thead>
          {grouped(found, field).map((group) => (
            <tbody key={group.value ?? ""} data-group={group.value ?? undefined}>
              {group.value !== null && (
                <tr class="group">
                  <th class="left" colSpan={4 + HEADS.length}>
                    {visible(field ?? "")} {group.value === "" ? "is not known" : `= ${visible(group.value)}`} <span class="count">{formatCount(group.runs.length)}</span>
                  </th>
                </tr>
              )}
              {group.runs.map((run) => (
                <Line key={run.address} run={run} ink={drawn.includes(run) ? props.inkOf(run) : null} toggle={() => toggle(run)} />
              ))}
            </tbody>
          ))}
        </table>
      </div>
    </section>
  );
}

function Options(props: { label: string; names: readonly string[] }) {
  if (props.names.length === 0) return null;
  return (
    <optgroup label={props.label}>
      {props.names.map((name) => (
        <option key={name} value={name}>
          {visible(name)}
        </option>
      ))}
    </optgroup>
  );
}

function Line(props: { run: ListedRun; ink: number | null; toggle: () => void }) {
  const { run, ink } = props;
  const { summary } = run;
  return (
    <tr data-run={run.address}>
      <td>
        <label class={ink === null ? "drawn" : `drawn ink-run-${ink}`}>
          <input type="checkbox" checked={ink !== null} disabled={summary === null} onChange={props.toggle} aria-label={`Draw ${visible(run.name)}`} />
        </label>
      </td>
      <th class="left">
        <a href={addressRoute(run.address)} data-row class="strong">
          {visible(run.name)}
        </a>
      </th>
      {summary === null ? (
        <td class={run.problem === "" ? "left soft" : "left fail"} colSpan={2 + HEADS.length}>
          {run.problem === "" ? "not read yet" : visible(run.problem)}
        </td>
      ) : (
        <>
          <td class="left">
            <span class={`pill ${summary.state}`}>{STATES[summary.state]}</span>
          </td>
          {HEADS.map((head) => {
            const value = numberOf(summary, head.column);
            return (
              <td key={head.column} data-number={head.column} data-value={String(value)} class={typeof value === "number" ? undefined : "soft"} title={head.column === "mfu" ? visible(summary.mfu.reason) : undefined}>
                {typeof value === "number" ? formatMeasured(value, head.unit) : "–"}
              </td>
            );
          })}
          <td class={`left diagnosis ${summary.verdict}`} title={visible(summary.line)}>
            {visible(summary.line)}
          </td>
        </>
      )}
    </tr>
  );
}

/** What the table can be ordered by. */
const COLUMNS: readonly string[] = ["name", "state", ...HEADS.map((head) => head.column)];

/** The column of the order, and whether it falls; by name unless the URL says otherwise. */
function orderOf(text: string | undefined): [Column, boolean] {
  const falling = text?.startsWith("-") ?? false;
  const column = falling ? (text ?? "").slice(1) : (text ?? "name");
  return COLUMNS.includes(column) ? [column as Column, falling] : ["name", false];
}
