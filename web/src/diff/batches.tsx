// Two batches token by token: both grids side by side, what differs underlined, and a way from one difference to the next.

import { useMemo, useState } from "preact/hooks";

import { question } from "../ask";
import { batchQuestion, type Batch, type TokenBatch } from "../batch/batch";
import { TokenGridView } from "../batch/tokengrid";
import { formatCount, formatPlural } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import { addressRoute, replaceQuery } from "../route";
import type { BatchDifference } from "../wire/types";
import { RecipeDiff } from "./recipes";

/** Samples that are named of those that only one side has. */
const LISTED_MAX = 12;

export function BatchDiff(props: { a: string; b: string; at: string | null }) {
  const { a, b } = props;
  const { loaded: facts, again } = useLoaded(question("differences", { a, b }));
  const left = useLoaded(batchQuestion(a), { keepStale: true });
  const right = useLoaded(batchQuestion(b), { keepStale: true });
  return (
    <>
      <Outcome of={facts} again={again} show={(found) => <Words facts={found} a={a} b={b} />} />
      <RecipeDiff a={a} b={b} />
      {left.loaded.phase === "ready" && right.loaded.phase === "ready" && <Panes left={left.loaded.value} right={right.loaded.value} at={props.at} />}
    </>
  );
}

function Words(props: { facts: BatchDifference; a: string; b: string }) {
  const { facts } = props;
  const { rows, length = [0, 0], tokens_differing = 0, masks_differing = 0, rows_differing = 0 } = facts.summary;
  const compared = Math.min(...rows) * Math.min(...length);
  const shapes = rows.map((count, side) => `${count} × ${length[side] ?? 0}`);
  return (
    <>
      <p class={`verdict ${facts.equal ? "ok" : "warn"}`}>
        {facts.equal
          ? "The two are equal, token by token."
          : facts.kind === "records"
            ? "The records differ."
            : `${formatPlural(tokens_differing, "token")} of ${formatCount(compared)} differ, in ${formatPlural(rows_differing, "row")}${masks_differing > 0 ? `, and ${formatPlural(masks_differing, "place")} of the loss mask` : ""}.`}{" "}
        <span class="soft mono">
          {facts.digests.map((one) => one.slice(0, 10)).join(" · ")}
        </span>
      </p>
      {facts.kind === "tokens" && shapes[0] !== shapes[1] && <p class="cut">The shapes differ ({shapes.join(" and ")}): what only one has was not compared.</p>}
      {!facts.equal && (
        <div class="only">
          <p class="soft small">{formatPlural(facts.both_count, "sample")} in both.</p>
          {facts.only.map((side, number) => (
            <p key={number} class="small">
              <span class="soft">
                only in {number === 0 ? "the first" : "the second"}: {formatCount(facts.only_counts[number] ?? 0)}{" "}
              </span>
              {side.slice(0, LISTED_MAX).map(([version, sample]) => (
                <a key={`${version} ${sample}`} href={addressRoute(`${version}/row/${sample}`)}>
                  {version}/{sample}{" "}
                </a>
              ))}
              {(facts.only_counts[number] ?? 0) > LISTED_MAX && <span class="soft">…</span>}
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
        <Command text={left.batch.facts.data_command} />
        <Command text={right.batch.facts.data_command} />
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
              look={{ by: "segment", ids: false, strips: [], marks: marks[number] ?? null }}
              chosen={place === null || place[0] >= batch.rows || place[1] >= batch.length ? null : place[0] * batch.length + place[1]}
              choose={(index) => choose(batch, index)}
              onView={() => undefined}
              label={number === 0 ? "Tokens of the first" : "Tokens of the second"}
            />
            <Command text={batch.facts.data_command} />
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
