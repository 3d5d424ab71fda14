// One row with all of its fields: text whole, media as media, and where its bytes lie.

import { addressOf, question } from "../ask";
import { formatBytes, formatCount, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Foreign } from "../part/foreign";
import { Media } from "../part/media";
import { Outcome } from "../part/state";
import type { RowField, VersionDetail, WholeRow } from "../wire/types";

export function RowPanel(props: { version: VersionDetail; row: number; choose: (row: number | null) => void }) {
  const { version, row, choose } = props;
  const { loaded, again } = useLoaded(question("row", { at: version.address, row }));
  const move = (by: number) => choose(Math.max(0, Math.min(version.rows - 1, row + by)));
  useKeys("Row", [
    { keys: "n", says: "Next row", run: () => move(1) },
    { keys: "p", says: "Previous row", run: () => move(-1) },
    { keys: "Escape", says: "Close the row", run: () => choose(null) },
  ]);
  return (
    <aside class="row-panel" aria-label={`Row ${row}`}>
      <div class="panel-head">
        <h2>
          row {formatCount(row)} <span class="soft">of {formatCount(version.rows)}</span>
        </h2>
        <span class="buttons">
          <button type="button" onClick={() => move(-1)} aria-label="Previous row" title="Previous row (p)">
            ↑
          </button>
          <button type="button" onClick={() => move(1)} aria-label="Next row" title="Next row (n)">
            ↓
          </button>
          <button type="button" onClick={() => choose(null)} aria-label="Close" title="Close (Esc)">
            ✕
          </button>
        </span>
      </div>
      <Outcome of={loaded} again={again} show={(found) => <Fields version={version} row={found} />} />
    </aside>
  );
}

function Fields(props: { version: VersionDetail; row: WholeRow }) {
  const { version, row } = props;
  const span = row.bytes === null ? "" : `, bytes ${formatCount(row.bytes[0] ?? 0)} to ${formatCount(row.bytes[1] ?? 0)}`;
  return (
    <>
      <p class="soft small origin">
        {visible(row.shard)}, its row {formatCount(row.place)}
        {span}
      </p>
      {row.fields.map((field) => (
        <FieldBlock key={field.name} field={field} address={addressOf("media", { at: version.address, row: row.row, field: field.field, path: field.path ?? "" })} />
      ))}
      <Command text={`${version.rows_command} --rows ${row.row}`} />
    </>
  );
}

function FieldBlock(props: { field: RowField; address: string }) {
  const { field } = props;
  return (
    <section class="field">
      <h3>
        <span>{visible(field.name)}</span> <span class="soft">{describe(field)}</span>
      </h3>
      <Media kind={field.kind} address={props.address} size={field.size ?? null}>
        <pre class={`value ${field.kind}`}>
          <Foreign text={field.text} lines />
        </pre>
      </Media>
      {field.of !== undefined && <p class="cut">Cut: this is the beginning of {formatCount(field.of)} {unit(field.kind)}.</p>}
    </section>
  );
}

function describe(field: RowField): string {
  if (field.kind === "array") return `${field.dtype} ${field.shape?.join(" × ")}`;
  if (field.size !== undefined) return `${field.kind === "bytes" ? "bytes" : field.text}, ${formatBytes(field.size)}`;
  return field.kind;
}

function unit(kind: string): string {
  return kind === "bytes" ? "bytes" : kind === "array" ? "numbers" : "characters";
}
