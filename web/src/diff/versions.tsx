// What changed between two versions: fields, shards, and rows if they are asked for, since that reads them.

import { useState } from "preact/hooks";

import { question } from "../ask";
import { formatCount, visible } from "../format";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import type { VersionDifference } from "../wire/types";

/** Names of one list that are shown. */
const LISTED_MAX = 50;
/** Null unless rows were compared. */
const ROW_COUNTS = ["rows_added", "rows_removed", "rows_changed"] as const;

export function VersionDiff(props: { a: string; b: string }) {
  const { a, b } = props;
  const [rows, setRows] = useState(false);
  const { loaded, again } = useLoaded(question("difference", { before: a, after: b, rows: rows ? 1 : 0 }));
  return (
    <>
      <Outcome
        of={loaded}
        again={again}
        show={(found) => (
          <>
            <p class={`verdict ${found.equal ? "ok" : "warn"}`}>{found.equal ? "The two are equal: the same shards with the same fields." : "The two differ."}</p>
            <dl class="fields">
              {listsOf(found).map(
                ([name, values]) =>
                  values.length > 0 && (
                    <div key={name}>
                      <dt>{name}</dt>
                      <dd>
                        {values.slice(0, LISTED_MAX).map(visible).join(", ")}
                        {values.length > LISTED_MAX && <span class="cut"> and {formatCount(values.length - LISTED_MAX)} more</span>}
                      </dd>
                    </div>
                  ),
              )}
              <div>
                <dt>shards equal</dt>
                <dd>{formatCount(found.shards_equal)}</dd>
              </div>
              {ROW_COUNTS.map((name) => {
                const count = found[name];
                return (
                  count !== null && (
                    <div key={name}>
                      <dt>{name.replace("_", " ")}</dt>
                      <dd>{formatCount(count)}</dd>
                    </div>
                  )
                );
              })}
            </dl>
          </>
        )}
      />
      <div class="foot">
        {!rows && (
          <button type="button" onClick={() => setRows(true)}>
            Compare rows too
          </button>
        )}
        {loaded.phase === "ready" && <Command text={loaded.value.command} />}
      </div>
    </>
  );
}

function listsOf(found: VersionDifference): readonly (readonly [string, readonly string[]])[] {
  const changed = Object.entries(found.fields_changed).map(([name, kinds]) => `${name}: ${kinds.join(" → ")}`);
  return [
    ["fields added", found.fields_added],
    ["fields removed", found.fields_removed],
    ["fields changed", changed],
    ["shards added", found.shards_added],
    ["shards removed", found.shards_removed],
    ["shards changed", found.shards_changed],
  ];
}
