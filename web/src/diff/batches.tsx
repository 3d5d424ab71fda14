// Two batches token by token: both grids side by side, what differs underlined, and a way from one difference to the next.

import { useMemo, useState } from "preact/hooks";

import type { Batch, TokenBatch } from "../batch/batch";
import { TokenGridView } from "../batch/tokengrid";
import { useBatch } from "../batch/usebatch";
import { asFields, asList, asNumber, asText, orNull } from "../decode";
import { formatCount, formatPlural } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import { addressRoute, replaceQuery } from "../route";
import { RecipeDiff } from "./recipes";

interface Facts {
  readonly kind: string;
  readonly equal: boolean;
  readonly digests: readonly string[];
  readonly differing: number;
  readonly masks: number;
  readonly rowsDiffering: number;
  /** Rows and tokens of both sides. */
  readonly rows: readonly number[];
  readonly length: readonly number[];
  readonly only: readonly (readonly (readonly [string, number])[])[];
  readonly onlyCounts: readonly number[];
  readonly both: number;
}

const LISTED_MAX = 12;

export function BatchDiff(props: { a: string; b: string; at: string | null }) {
  const { a, b } = props;
  const query = new URLSearchParams({ a, b });
  const [facts, again] = useLoaded(`api/differences?${query}`, readFacts);
  const [left, right] = [useBatch(a), useBatch(b)];
  return (
    <>
      <Outcome of={facts} again={again} show={(found) => <Words facts={found} a={a} b={b} />} />
      <RecipeDiff a={a} b={b} />
      {left.loaded.phase === "ready" && right.loaded.phase === "ready" && <Panes left={left.loaded.value} right={right.loaded.value} at={props.at} />}
    </>
  );
}

function Words(props: { facts: Facts; a: string; b: string }) {
  const { facts } = props;
  const compared = Math.min(...facts.rows) * Math.min(...facts.length);
  const shapes = facts.rows.map((rows, side) => `${rows} × ${facts.length[side] ?? 0}`);
  return (
    <>
      <p class={`verdict ${facts.equal ? "ok" : "warn"}`}>
        {facts.equal
          ? "The two are equal, token by token."
          : facts.kind === "records"
            ? "The records differ."
            : `${formatPlural(facts.differing, "token")} of ${formatCount(compared)} differ, in ${formatPlural(facts.rowsDiffering, "row")}${facts.masks > 0 ? `, and ${formatPlural(facts.masks, "place")} of the loss mask` : ""}.`}{" "}
        <span class="soft mono">
          {facts.digests.map((one) => one.slice(0, 10)).join(" · ")}
        </span>
      </p>
      {facts.kind === "tokens" && shapes[0] !== shapes[1] && <p class="cut">The shapes differ ({shapes.join(" and ")}): what only one has was not compared.</p>}
      {!facts.equal && (
        <div class="only">
          <p class="soft small">{formatPlural(facts.both, "sample")} in both.</p>
          {facts.only.map((side, number) => (
            <p key={number} class="small">
              <span class="soft">
                only in {number === 0 ? "the first" : "the second"}: {formatCount(facts.onlyCounts[number] ?? 0)}{" "}
              </span>
              {side.slice(0, LISTED_MAX).map(([version, sample]) => (
                <a key={`${version} ${sample}`} href={addressRoute(`${version}/row/${sample}`)}>
                  {version}/{sample}{" "}
                </a>
              ))}
              {(facts.onlyCounts[number] ?? 0) > LISTED_MAX && <span class="soft">…</span>}
            </p>
          ))}
        </div>
      )}
    </>
  );
}

function Panes(props: { left: Batch; right: Batch; at: string | null }) {
  const { left, right } = props;
  if (left.kind !== "tokens" || right.kind !== "tokens") {
    return (
      <div class="commands">
        <Command text={left.batch.facts.dataCommand} />
        <Command text={right.batch.facts.dataCommand} />
      </div>
    );
  }
  return <TokenPanes left={left.batch} right={right.batch} at={props.at} />;
}

function TokenPanes(props: { left: TokenBatch; right: TokenBatch; at: string | null }) {
  const { left, right } = props;
  const marks = useMemo(() => [marksOf(left, right), marksOf(right, left)] as const, [left, right]);
  const asked = /^(\d{1,9}):(\d{1,9})$/.exec(props.at ?? "");
  const [place, setPlace] = useState<readonly [number, number] | null>(asked === null ? firstMark(left, marks[0]) : [Number(asked[1]), Number(asked[2])]);
  const choose = (batch: TokenBatch, index: number) => {
    const next = [Math.floor(index / batch.length), index % batch.length] as const;
    setPlace(next);
    replaceQuery(new Map([["at", next.join(":")]]));
  };
  const turn = (by: 1 | -1) => {
    const from = place === null ? -1 : place[0] * left.length + place[1];
    const next = neighbour(marks[0], from, by);
    if (next !== null) choose(left, next);
  };
  useKeys("Batch", [
    { keys: "n", says: "Next stretch of differences", run: () => turn(1) },
    { keys: "p", says: "Previous stretch of differences", run: () => turn(-1) },
  ]);
  return (
    <>
      <div class="tools">
        <button type="button" onClick={() => turn(-1)} title="Previous (p)">
          previous difference
        </button>
        <button type="button" onClick={() => turn(1)} title="Next (n)">
          next difference
        </button>
        {[left, right].some((batch) => batch.cuts.length > 0) && <span class="cut">Cut: {[...left.cuts, ...right.cuts].join(", ")} are shown; the counts above are of everything.</span>}
      </div>
      <div class="panes">
        {[left, right].map((batch, number) => (
          <section key={number} class="pane">
            <h3>
              <a href={addressRoute(batch.facts.address)}>{batch.facts.address}</a>
            </h3>
            <TokenGridView
              batch={batch}
              look={{ by: "segment", ids: false, lanes: [], marks: marks[number] ?? null }}
              chosen={place === null || place[0] >= batch.rows || place[1] >= batch.length ? null : place[0] * batch.length + place[1]}
              choose={(index) => choose(batch, index)}
              onView={() => undefined}
              label={number === 0 ? "Tokens of the first" : "Tokens of the second"}
            />
            <Command text={batch.facts.dataCommand} />
          </section>
        ))}
      </div>
    </>
  );
}

/** 1 for every token that the other does not have at the same place. */
function marksOf(batch: TokenBatch, other: TokenBatch): Uint8Array {
  const marks = new Uint8Array(batch.ids.length);
  for (let row = 0; row < batch.rows; row++) {
    for (let token = 0; token < batch.length; token++) {
      const index = row * batch.length + token;
      const there = row < other.rows && token < other.length ? row * other.length + token : -1;
      if (there < 0 || batch.ids[index] !== other.ids[there] || batch.mask[index] !== other.mask[there]) marks[index] = 1;
    }
  }
  return marks;
}

function firstMark(batch: TokenBatch, marks: Uint8Array): readonly [number, number] | null {
  const at = marks.indexOf(1);
  return at < 0 ? null : [Math.floor(at / batch.length), at % batch.length];
}

/** Where the next stretch of differences begins. */
function neighbour(marks: Uint8Array, from: number, by: 1 | -1): number | null {
  for (let at = from + by; at >= 0 && at < marks.length; at += by) {
    if (marks[at] === 1 && marks[at - 1] !== 1) return at;
  }
  return null;
}

function readFacts(value: unknown): Facts {
  const facts = asFields(value);
  const summary = asFields(facts["summary"]);
  const numbers = (one: unknown) => asList(one ?? []).map(asNumber);
  return {
    kind: asText(facts["kind"]),
    equal: facts["equal"] === true,
    digests: asList(facts["digests"]).map(asText),
    differing: orNull(summary["tokens_differing"], asNumber) ?? 0,
    masks: orNull(summary["masks_differing"], asNumber) ?? 0,
    rowsDiffering: orNull(summary["rows_differing"], asNumber) ?? 0,
    rows: numbers(summary["rows"]),
    length: numbers(summary["length"]),
    only: asList(facts["only"] ?? []).map((side) =>
      asList(side).map((one) => {
        const [version, sample] = asList(one);
        return [asText(version), asNumber(sample)] as const;
      }),
    ),
    onlyCounts: numbers(facts["only_counts"]),
    both: orNull(facts["both_count"], asNumber) ?? 0,
  };
}
