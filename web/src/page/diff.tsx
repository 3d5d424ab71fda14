// Two addresses side by side: two versions by fields, shards and rows; two batches token by token.

import { useEffect, useRef, useState } from "preact/hooks";

import { isStream } from "../batch/place";
import { useKeys } from "../keys";
import { EmptyState } from "../part/state";
import { replaceQuery } from "../route";
import type { PageProps } from "../section";
import { BatchDiff } from "../diff/batches";
import { VersionDiff } from "../diff/versions";

export function DiffPage(props: PageProps) {
  const a = props.route.query.get("a") ?? "";
  const b = props.route.query.get("b") ?? "";
  const first = useRef<HTMLInputElement>(null);
  const swap = () => replaceQuery(new Map([["a", b], ["b", a]]));
  useKeys("This page", [
    { keys: "x", says: "Swap the two sides", run: swap },
    { keys: "/", says: "Type what to compare", run: () => first.current?.select() },
  ]);
  return (
    <div class="diff">
      <Sides key={`${a}\n${b}`} a={a} b={b} first={first} swap={swap} />
      {a === "" || b === "" ? (
        <EmptyState title="Compare two of anything">
          <p>Two versions (web@2, web@3), two steps of a recipe, or the same step of two recipes: give two addresses above.</p>
        </EmptyState>
      ) : isStream(a) && isStream(b) ? (
        <BatchDiff key={`${a}\n${b}`} a={a} b={b} at={props.route.query.get("at") ?? null} />
      ) : isStream(a) || isStream(b) ? (
        <EmptyState title="These two cannot be compared">
          <p>One is a version and the other a batch.</p>
        </EmptyState>
      ) : (
        <VersionDiff key={`${a}\n${b}`} a={a} b={b} />
      )}
    </div>
  );
}

function Sides(props: { a: string; b: string; first: { current: HTMLInputElement | null }; swap: () => void }) {
  const [a, setA] = useState(props.a);
  const [b, setB] = useState(props.b);
  useEffect(() => {
    setA(props.a);
    setB(props.b);
  }, [props.a, props.b]);
  const apply = (event: Event) => {
    event.preventDefault();
    replaceQuery(new Map([["a", a.trim() || null], ["b", b.trim() || null], ["at", null]]));
  };
  return (
    <form class="sides" onSubmit={apply}>
      <input ref={props.first} class="mono" value={a} onInput={(event) => setA(event.currentTarget.value)} aria-label="One address" placeholder="recipe.toml#step=41206" spellcheck={false} />
      <button type="button" onClick={props.swap} aria-label="Swap the two sides" title="Swap (x)">
        ⇄
      </button>
      <input class="mono" value={b} onInput={(event) => setB(event.currentTarget.value)} aria-label="The other address" placeholder="recipe.toml#step=41207" spellcheck={false} />
      <button type="submit">Compare</button>
    </form>
  );
}
