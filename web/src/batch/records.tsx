// A batch of records: every row with its fields as what they are, and where it came from.

import { useState } from "preact/hooks";

import { addressOf, question } from "../ask";
import { formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Foreign } from "../part/foreign";
import { Media } from "../part/media";
import { Outcome } from "../part/state";
import { addressRoute } from "../route";
import type { RecordRow } from "../wire/types";
import type { RecordBatch } from "./batch";

/** Records of one page. */
const PAGE = 12;

export function Records(props: { batch: RecordBatch; chosen: number | null }) {
  const { facts } = props.batch;
  const [first, setFirst] = useState(Math.floor((props.chosen ?? 0) / PAGE) * PAGE);
  const { address, undecodable } = facts;
  const { loaded, again } = useLoaded(question("records", { address, first, count: PAGE }));
  return (
    <>
      {undecodable.length > 0 && <p class="warn">{formatPlural(undecodable.length, "sample")} could not be decoded.</p>}
      <Outcome
        of={loaded}
        again={again}
        show={(page) => (
          <div class="records">
            {page.rows.map((row) => (
              <Record key={row.row} row={row} address={address} chosen={row.row === props.chosen} />
            ))}
          </div>
        )}
      />
      <div class="foot">
        <span class="soft">
          Rows {first} to {Math.min(facts.rows, first + PAGE) - 1} of {formatCount(facts.rows)}.
        </span>
        {first > 0 && (
          <button type="button" onClick={() => setFirst(first - PAGE)}>
            Earlier
          </button>
        )}
        {first + PAGE < facts.rows && (
          <button type="button" onClick={() => setFirst(first + PAGE)}>
            Further
          </button>
        )}
      </div>
    </>
  );
}

function Record(props: { row: RecordRow; address: string; chosen: boolean }) {
  const { row, address } = props;
  const origin = row.origin[0];
  return (
    <section class={`record${props.chosen ? " chosen" : ""}`}>
      <h3>
        row {row.row} {!row.valid && <span class="warn">does not count</span>}
        {origin === undefined ? (
          <span class="soft">padding</span>
        ) : (
          <a href={addressRoute(`${origin.version}/row/${origin.sample}`)} title={visible(origin.shard)}>
            {origin.version}/row/{origin.sample}
          </a>
        )}
      </h3>
      {row.fields.map((field) => (
        <div key={field.name} class="record-field">
          <span class="soft">
            {visible(field.name)} <small>{visible(field.type ?? field.kind)}, {field.size}</small>
          </span>
          <Media kind={field.kind} size={null} address={addressOf("field", { address, row: row.row, name: field.name })}>
            {field.kind === "trajectory" ? <Curve values={field.preview} /> : null}
            <pre class="value">
              <Foreign text={typeof field.preview === "string" ? field.preview : JSON.stringify(field.preview)} lines />
            </pre>
          </Media>
          {field.cut !== undefined && <p class="cut">Cut: {field.cut} are not shown.</p>}
        </div>
      ))}
    </section>
  );
}

/** The first numbers of a trajectory as a line. */
function Curve(props: { values: unknown }) {
  const values = Array.isArray(props.values) ? props.values.filter((value): value is number => typeof value === "number") : [];
  if (values.length < 2) return null;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const points = values.map((value, at) => `${(at / (values.length - 1)) * 240},${40 - ((value - low) / (high - low || 1)) * 36 - 2}`);
  return (
    <svg class="curve" viewBox="0 0 240 40" role="img" aria-label={`Numbers from ${low} to ${high}`}>
      <polyline points={points.join(" ")} />
    </svg>
  );
}
