// The table by kind: how often, how long. A click on a column sorts, a click on a kind picks it out
// in the timeline; the colour beside the name is the one the timeline uses.

import { useState } from "preact/hooks";

import { formatCount, formatDuration, formatPlural, visible } from "../format";
import type { Recording } from "../timeline/recording";
import type { KindRow } from "../wire/types";

type Column = "kind" | "count" | "total_ns" | "p50_ns" | "p99_ns" | "max_ns";

/** Columns in order, with their titles. */
const COLUMNS: readonly (readonly [Column, string])[] = [
  ["kind", "Kind"],
  ["count", "Count"],
  ["total_ns", "Total"],
  ["p50_ns", "p50"],
  ["p99_ns", "p99"],
  ["max_ns", "Max"],
];

interface KindTableProps {
  readonly recording: Recording;
  readonly colours: ReadonlyMap<string, number>;
  readonly chosen: string | null;
  readonly choose: (kind: string | null) => void;
}

export function KindTable(props: KindTableProps) {
  const [column, setColumn] = useState<Column>("total_ns");
  const [descending, setDescending] = useState(true);
  const sortBy = (name: Column) => {
    setDescending(name === column ? !descending : name !== "kind");
    setColumn(name);
  };
  const rows = [...props.recording.kinds].sort((a, b) => compare(a, b, column) * (descending ? -1 : 1));
  const most_ns = Math.max(1, ...rows.map((row) => row.total_ns ?? 0));
  return (
    <section aria-label="Events by kind">
      <h2>By kind</h2>
      <div class="wide">
        <table>
          <thead>
            <tr>
              {COLUMNS.map(([name, title]) => (
                <th key={name} scope="col" aria-sort={name === column ? (descending ? "descending" : "ascending") : "none"}>
                  <button type="button" onClick={() => sortBy(name)}>
                    {title}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <KindLine key={row.kind} row={row} most_ns={most_ns} {...props} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function KindLine(props: KindTableProps & { row: KindRow; most_ns: number }) {
  const { row, chosen, choose } = props;
  const isChosen = chosen === row.kind;
  const share = `${(100 * (row.total_ns ?? 0)) / props.most_ns}%`;
  return (
    <tr class={isChosen ? "chosen" : ""}>
      <th scope="row">
        <button type="button" data-row aria-pressed={isChosen} title={visible(row.kind)} onClick={() => choose(isChosen ? null : row.kind)}>
          <span class={`swatch kind-${props.colours.get(row.kind) ?? "rest"}`} aria-hidden="true" />
          <span class="kind-name">{visible(row.kind)}</span>
        </button>
      </th>
      <td>
        {formatCount(row.count)}
        {row.open_count > 0 && <span class="soft"> ({formatPlural(row.open_count, "span")} never ended)</span>}
      </td>
      <td class="total">
        {duration(row.total_ns)}
        <span class="bar" aria-hidden="true" style={{ width: share }} />
      </td>
      <td>{duration(row.p50_ns)}</td>
      <td>{duration(row.p99_ns)}</td>
      <td>{duration(row.max_ns)}</td>
    </tr>
  );
}

function duration(ns: number | null) {
  return ns === null ? <span class="soft">–</span> : formatDuration(ns);
}

function compare(a: KindRow, b: KindRow, column: Column): number {
  if (column === "kind") return a.kind < b.kind ? -1 : a.kind > b.kind ? 1 : 0;
  return (a[column] ?? -1) - (b[column] ?? -1);
}
