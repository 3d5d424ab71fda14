// What changed between two versions: fields, shards, and rows if they are asked for, since that reads them.

import { useState } from "preact/hooks";

import { asFields, asList, asNumber, asText, orNull } from "../decode";
import { formatCount, visible } from "../format";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";

interface Difference {
  readonly equal: boolean;
  readonly command: string;
  readonly lists: readonly (readonly [string, readonly string[]])[];
  readonly shardsEqual: number;
  readonly rows: readonly (readonly [string, number | null])[];
}

const LISTED_MAX = 50;

export function VersionDiff(props: { a: string; b: string }) {
  const { a, b } = props;
  const [rows, setRows] = useState(false);
  const query = new URLSearchParams({ before: a, after: b, rows: rows ? "1" : "0" });
  const [loaded, again] = useLoaded(`api/difference?${query}`, readDifference);
  return (
    <>
      <Outcome
        of={loaded}
        again={again}
        show={(found) => (
          <>
            <p class={`verdict ${found.equal ? "ok" : "warn"}`}>{found.equal ? "The two are equal: the same shards with the same fields." : "The two differ."}</p>
            <dl class="fields">
              {found.lists.map(
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
                <dd>{formatCount(found.shardsEqual)}</dd>
              </div>
              {found.rows.map(
                ([name, count]) =>
                  count !== null && (
                    <div key={name}>
                      <dt>{name}</dt>
                      <dd>{formatCount(count)}</dd>
                    </div>
                  ),
              )}
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

function readDifference(value: unknown): Difference {
  const found = asFields(value);
  const texts = (name: string) => asList(found[name]).map(asText);
  const changed = Object.entries(asFields(found["fields_changed"])).map(([name, pair]) => `${name}: ${asList(pair).map(asText).join(" → ")}`);
  return {
    equal: found["equal"] === true,
    command: asText(found["command"]),
    lists: [
      ["fields added", texts("fields_added")],
      ["fields removed", texts("fields_removed")],
      ["fields changed", changed],
      ["shards added", texts("shards_added")],
      ["shards removed", texts("shards_removed")],
      ["shards changed", texts("shards_changed")],
    ],
    shardsEqual: asNumber(found["shards_equal"]),
    rows: (["rows_added", "rows_removed", "rows_changed"] as const).map((name) => [name.replace("_", " "), orNull(found[name], asNumber)] as const),
  };
}
