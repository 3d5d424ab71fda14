// A batch exactly as a training step receives it: tokens first, and beside them what they are spent on, how rows are
// packed, where a token came from, and what every lane gets. The URL is the address of what is chosen.

import { useEffect, useRef, useState } from "preact/hooks";

import { batchQuestion, type Batch, type TokenBatch } from "../batch/batch";
import { Budget } from "../batch/budget";
import { COLOURINGS } from "../batch/colour";
import type { GridLook } from "../batch/grid";
import { LensView } from "../batch/lens";
import { Live } from "../batch/live";
import { Overview } from "../batch/overview";
import { Packing, piecesOf } from "../batch/packing";
import { formatPlace, parsePlace, type Place } from "../batch/place";
import { Records } from "../batch/records";
import { TokenGridView } from "../batch/tokengrid";
import { TokenPanel } from "../batch/tokenpanel";
import { formatCount, formatPlural, visible } from "../format";
import { useKeys, type Binding } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import { addressRoute, formatRoute, goTo, parseRoute, replaceAddress, replaceQuery } from "../route";

type Query = ReadonlyMap<string, string>;
/** How long a choice rests before the address says it. */
const REST_MS = 120;

export function BatchPage(props: { address: string; query: Query }) {
  const { query } = props;
  const place = parsePlace(props.address);
  const wanted = formatPlace({ ...place, row: null, token: null });
  const part = { rows: query.get("rows") ?? null, tap: query.get("tap") ?? null, bytes: query.get("bytes") === "1" };
  // The last batch stays until the next is there, so that walking through steps does not flicker.
  const { loaded, stale, again } = useLoaded(batchQuestion(wanted, part), { keepStale: true });
  const lens = query.get("view") === "lanes";
  const step = loaded.phase === "ready" ? loaded.value.batch.facts.step : (place.step ?? 0);
  const input = useRef<HTMLInputElement>(null);
  const goStep = (next: number) => next >= 0 && goTo(formatPlace({ ...place, step: next, row: place.row, token: place.token }), query);
  useKeys("Batch", [
    { keys: "n", says: "Next step", run: () => goStep(step + 1) },
    { keys: "p", says: "Previous step", run: () => goStep(step - 1) },
    { keys: "s", says: "Go to a step by its number", run: () => input.current?.select() },
    { keys: "l", says: "Rank lens: what every lane gets", run: () => replaceQuery(new Map([["view", lens ? null : "lanes"]])) },
    { keys: "r", says: "Load it again", run: again },
  ]);
  return (
    <div class={`batch${stale && loaded.phase === "ready" ? " stale" : ""}`} aria-busy={stale}>
      <Outcome
        of={loaded}
        again={again}
        show={(found) => (
          <>
            <BatchHead found={found} place={place} lens={lens} input={input} goStep={goStep} />
            <Missing found={found} place={place} />
            {place.stream.startsWith("run:") && <Live address={wanted} tap={query.get("tap") ?? null} />}
            {lens ? (
              <LensView key={`${place.stream} ${step}`} place={{ ...place, step }} lanes={number(query, "lanes") ?? 4} equal={number(query, "equal") ?? 1} />
            ) : found.kind === "tokens" ? (
              <Tokens batch={found.batch} place={{ ...place, step }} query={query} />
            ) : (
              <Records key={found.batch.facts.address} batch={found.batch} chosen={place.row} />
            )}
          </>
        )}
      />
    </div>
  );
}

/** Says that the address names a row or a token that the batch does not have. */
function Missing(props: { found: Batch; place: Place }) {
  const { found, place } = props;
  const { rows } = found.batch.facts;
  const length = found.kind === "tokens" ? found.batch.length : 0;
  const words =
    place.row !== null && place.row >= rows
      ? `There is no row ${formatCount(place.row)}: rows go from 0 to ${formatCount(rows - 1)}.`
      : place.token !== null && place.token >= length
        ? `There is no token ${formatCount(place.token)} in a row of ${formatCount(length)}.`
        : "";
  return words === "" ? null : (
    <p class="fail" role="alert">
      {words}
    </p>
  );
}

interface HeadProps {
  readonly found: Batch;
  readonly place: Place;
  readonly lens: boolean;
  readonly input: { current: HTMLInputElement | null };
  readonly goStep: (step: number) => void;
}

function BatchHead(props: HeadProps) {
  const { found, place, lens, input, goStep } = props;
  const { facts } = found.batch;
  const size = found.kind === "tokens" ? `${formatCount(facts.rows)} × ${formatCount(found.batch.length)} tokens` : formatPlural(facts.rows, "record");
  const jump = (event: Event) => {
    event.preventDefault();
    const text = (input.current?.value ?? "").replaceAll(/[,_\s]/g, "");
    if (/^\d{1,16}$/.test(text)) goStep(Number(text));
    input.current?.blur();
  };
  const next = formatPlace({ ...place, step: facts.step + 1, row: null, token: null });
  const here = formatPlace({ ...place, step: facts.step, row: null, token: null });
  return (
    <header class="head">
      <div class="head-line">
        <h1>{visible(place.stream)}</h1>
        <form class="stepper" onSubmit={jump}>
          <button type="button" onClick={() => goStep(facts.step - 1)} disabled={facts.step === 0} aria-label="Previous step" title="Previous step (p)">
            ‹
          </button>
          <label>
            step <input key={facts.step} ref={input} defaultValue={String(facts.step)} inputMode="numeric" aria-label="Step" title="Go to a step (s)" />
          </label>
          <button type="button" onClick={() => goStep(facts.step + 1)} aria-label="Next step" title="Next step (n)">
            ›
          </button>
        </form>
        <p class="facts">
          <span>lane {facts.lane}</span>
          <span>{size}</span>
          {facts.kind === "tokens" && facts.loss_tokens !== null && <span>{formatCount(facts.loss_tokens)} in the loss</span>}
          {facts.padding > 0 && <span>{formatCount(facts.padding)} padding</span>}
          <span class="mono" title="The digest of the batch">
            {facts.digest.slice(0, 12)}
          </span>
        </p>
        <span class="head-links">
          <button type="button" aria-pressed={lens} onClick={() => replaceQuery(new Map([["view", lens ? null : "lanes"]]))} title="Rank lens (l)">
            lanes
          </button>
          {place.stream.startsWith("run:") && (
            <a class="button" href={addressRoute(place.stream)}>
              run
            </a>
          )}
          <a class="button" href={formatRoute(["diff"], new Map([["a", here], ["b", next]]))}>
            compare
          </a>
        </span>
      </div>
      <div class="commands">
        <Command text={facts.data_command} />
        <Command text={facts.command} />
      </div>
    </header>
  );
}

function Tokens(props: { batch: TokenBatch; place: Place; query: Query }) {
  const { batch, place, query } = props;
  const colourings = [...COLOURINGS, ...batch.numeric.keys()];
  const by = colourings.find((one) => one === query.get("by")) ?? "segment";
  const ids = query.get("ids") === "1";
  const bytes = query.get("bytes") === "1";
  const strips = (query.get("columns") ?? "").split(",").filter((name) => batch.numeric.has(name));
  const [chosen, choose] = useChosen(batch, place);
  const [view, setView] = useState<readonly [number, number]>([0, 0]);
  const look: GridLook = { by, ids, strips, marks: null };
  const row = chosen === null ? batch.firstRow + Math.floor(view[0] / batch.length) : batch.firstRow + Math.floor(chosen / batch.length);
  const set = (name: string, value: string | null) => replaceQuery(new Map([[name, value]]));
  const cycle = () => set("by", colourings[(colourings.indexOf(by) + 1) % colourings.length] ?? null);
  useKeys("Batch", [
    { keys: "c", says: "Colour by the next thing", run: cycle },
    { keys: "i", says: "Show or hide ids", run: () => set("ids", ids ? null : "1") },
    { keys: "b", says: "Show characters or the exact bytes of tokens", run: () => set("bytes", bytes ? null : "1") },
    ...walking(batch, chosen, view[0], choose),
  ]);
  return (
    <>
      <Overview batch={batch} by={by} view={view} chosen={chosen} go={choose} />
      <div class="tools">
        <span class="soft">colour by</span>
        {colourings.map((one) => (
          <button key={one} type="button" class="tab" aria-pressed={one === by} onClick={() => set("by", one)}>
            {visible(one)}
          </button>
        ))}
        <button type="button" class="tab" aria-pressed={ids} onClick={() => set("ids", ids ? null : "1")} title="Show or hide ids (i)">
          ids
        </button>
        <button type="button" class="tab" aria-pressed={bytes} onClick={() => set("bytes", bytes ? null : "1")} title="Characters that several tokens share: whole, or as the exact bytes of each token (b)">
          bytes
        </button>
        {[...batch.numeric.keys()].map((name) => (
          <label key={name} class="strip-choice">
            <input type="checkbox" checked={strips.includes(name)} onChange={() => set("columns", toggled(strips, name))} /> {visible(name)}
          </label>
        ))}
        <Cuts batch={batch} />
      </div>
      <div class="beside">
        <TokenGridView batch={batch} look={look} chosen={chosen} choose={choose} onView={(first, last) => setView((old) => (old[0] === first && old[1] === last ? old : [first, last]))} label="Tokens" />
        <aside class="batch-side">
          {chosen !== null && <TokenPanel batch={batch} index={chosen} address={placeOf(batch, place, chosen)} tap={query.get("tap") ?? null} choose={choose} />}
          <section>
            <h2>Loss</h2>
            <Budget batch={batch} />
          </section>
          <section>
            <h2>Packing</h2>
            <Packing batch={batch} row={row} go={(token) => choose((row - batch.firstRow) * batch.length + token)} />
          </section>
        </aside>
      </div>
    </>
  );
}

function Cuts(props: { batch: TokenBatch }) {
  const { batch } = props;
  if (batch.cuts.length === 0) return null;
  const next = batch.firstRow + batch.rows;
  const page = (first: number) => replaceQuery(new Map([["rows", `${first}:${first + batch.rows}`]]));
  return (
    <span class="cut">
      Cut: shown are {batch.cuts.join(", ")}.{" "}
      {batch.firstRow > 0 && (
        <button type="button" class="link" onClick={() => page(Math.max(0, batch.firstRow - batch.rows))}>
          earlier rows
        </button>
      )}{" "}
      {next < batch.facts.rows && (
        <button type="button" class="link" onClick={() => page(next)}>
          further rows
        </button>
      )}
    </span>
  );
}

/** The chosen token: from the address at first and when that changes, and back to it at rest. */
function useChosen(batch: TokenBatch, place: Place): [number | null, (index: number | null) => void] {
  const asked = place.row === null ? null : indexOf(batch, place.row, place.token ?? 0);
  const [chosen, setChosen] = useState(asked);
  const timer = useRef(0);
  useEffect(() => setChosen(asked), [batch, place.row, place.token]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const choose = (index: number | null) => {
    setChosen(index);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      // The reader may have gone to another step meanwhile; only what is chosen changes.
      const now = parsePlace(parseRoute(location.hash).address ?? "");
      const here = { ...now, step: now.step ?? place.step };
      if (now.stream === place.stream) replaceAddress(index === null ? formatPlace({ ...here, row: null, token: null }) : placeOf(batch, here, index));
    }, REST_MS);
  };
  return [chosen, choose];
}

function walking(batch: TokenBatch, chosen: number | null, top: number, choose: (index: number | null) => void): Binding[] {
  const move = (by: number) => choose(chosen === null ? top : Math.max(0, Math.min(batch.ids.length - 1, chosen + by)));
  const turn = (by: 1 | -1) => {
    const at = chosen ?? top;
    const base = Math.floor(at / batch.length) * batch.length;
    const pieces = piecesOf(batch, batch.firstRow + base / batch.length).map((piece) => base + piece.at);
    choose((by > 0 ? pieces.find((start) => start > at) : pieces.filter((start) => start < at).pop()) ?? Math.max(0, Math.min(batch.ids.length - 1, by > 0 ? base + batch.length : base - 1)));
  };
  return [
    { keys: "ArrowRight", says: "Next token", run: () => move(1) },
    { keys: "ArrowLeft", says: "Previous token", run: () => move(-1) },
    { keys: "j", says: "Next row", run: () => move(batch.length) },
    { keys: "k", says: "Previous row", run: () => move(-batch.length) },
    { keys: "]", says: "Next document", run: () => turn(1) },
    { keys: "[", says: "Previous document", run: () => turn(-1) },
    { keys: "o", says: "Open the origin of the token", run: () => openOrigin(batch, chosen) },
    { keys: "Escape", says: "Let go of the token", run: () => choose(null) },
  ];
}

function openOrigin(batch: TokenBatch, chosen: number | null): void {
  if (chosen === null) return;
  const row = batch.firstRow + Math.floor(chosen / batch.length);
  const token = chosen % batch.length;
  const piece = piecesOf(batch, row).find((one) => one.at <= token && token < one.stop);
  if (piece !== undefined) location.hash = addressRoute(`${batch.sources[piece.source]?.version}/row/${piece.sample}`);
}

function placeOf(batch: TokenBatch, place: Place, index: number): string {
  return formatPlace({ ...place, row: batch.firstRow + Math.floor(index / batch.length), token: index % batch.length });
}

function indexOf(batch: TokenBatch, row: number, token: number): number | null {
  const inside = row >= batch.firstRow && row < batch.firstRow + batch.rows && token < batch.length;
  return inside ? (row - batch.firstRow) * batch.length + token : null;
}

function toggled(strips: readonly string[], name: string): string | null {
  const next = strips.includes(name) ? strips.filter((one) => one !== name) : [...strips, name];
  return next.length === 0 ? null : next.join(",");
}

function number(query: Query, name: string): number | null {
  const text = query.get(name) ?? "";
  return /^\d{1,6}$/.test(text) ? Number(text) : null;
}
