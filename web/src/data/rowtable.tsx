// The rows of a version as a table of any length, with the spread of every column in its head and a filter above.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { question } from "../ask";
import { formatBytes, formatCount, formatPlural, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Foreign } from "../part/foreign";
import { Virtual, type Window } from "../part/virtual";
import { replaceQuery } from "../route";
import type { CellValue, ColumnSpread, RowLine, VersionDetail } from "../wire/types";
import { ColumnHead } from "./columnhead";
import { PASSING_MAX, useFilter, type FilterState } from "./usefilter";

/** Pixels of a line, and of the head with its bars. */
const LINE = 30;
const HEAD = 98;
/** Rows that are asked for at once, and how many such answers are kept. */
const CHUNK = 64;
const CHUNKS_KEPT = 60;
/** Pixels of a column by the kind of its field. */
const WIDTHS: Readonly<Record<string, number>> = { int: 104, float: 112, bool: 84, string: 300, bytes: 132, list: 260, object: 260, array: 260 };

interface RowTableProps {
  readonly version: VersionDetail;
  readonly chosen: number | null;
  readonly where: string;
  readonly choose: (row: number | null) => void;
}

export function RowTable(props: RowTableProps) {
  const { version, chosen, where, choose } = props;
  const { loaded: spread } = useLoaded(question("columns", { at: version.address }));
  const [jump, setJump] = useState<number | null>(null);
  const pages = usePages(version);
  const filtered = useFilter(version, where);
  const found = spread.phase === "ready" ? new Map(spread.value.columns.map((column) => [column.name, column])) : new Map<string, ColumnSpread>();
  const widths = version.schema.map((field) => (found.get(field.name)?.of === "values" ? 140 : (WIDTHS[field.kind] ?? 160)));
  const columns = `76px ${widths.map((wide) => `minmax(${wide}px, ${wide >= 260 ? 4 : 1}fr)`).join(" ")}`;
  const width = 76 + widths.reduce((sum, wide) => sum + wide, 0);
  const filtering = where !== "";
  const lines = filtered.rows;
  const count = filtering ? lines.length : version.rows;
  const line = (index: number): RowLine | null => (filtering ? (lines[index] ?? null) : pages.line(index));
  const reveal = filtering ? (chosen === null ? null : orNull(lines.findIndex((one) => one.row === chosen))) : (jump ?? chosen);
  const walk = (by: 1 | -1) => {
    if (!filtering) return choose(Math.max(0, Math.min(version.rows - 1, chosen === null ? 0 : chosen + by)));
    const at = lines.findIndex((one) => one.row === chosen);
    const next = lines[Math.max(0, Math.min(lines.length - 1, at + by))];
    return next === undefined ? undefined : choose(next.row);
  };
  const input = useRef<HTMLInputElement>(null);
  const rowInput = useRef<HTMLInputElement>(null);
  useKeys("Rows", [
    { keys: "/", says: "Filter rows by an expression", run: () => input.current?.focus() },
    { keys: "#", says: "Go to a row by its number", run: () => rowInput.current?.focus() },
    { keys: "j", says: "Next row", run: () => walk(1) },
    { keys: "k", says: "Previous row", run: () => walk(-1) },
  ]);
  const head = (
    <div class="row-head" style={{ gridTemplateColumns: columns, minWidth: `${width}px`, height: `${HEAD}px` }}>
      <div class="column-head number soft">row</div>
      {version.schema.map((field) => (
        <ColumnHead key={field.name} field={field} spread={found.get(field.name) ?? null} where={where} />
      ))}
    </div>
  );
  return (
    <section class="rows" aria-label="Rows">
      <FilterBar where={where} input={input} rowInput={rowInput} rows={version.rows} jump={(row) => (choose(row), setJump(row))} />
      <Words version={version} filtering={filtering} filtered={filtered} looked={spread.phase === "ready" ? spread.value.looked_at : null} />
      <Virtual
        count={count}
        lineHeight={LINE}
        headHeight={HEAD}
        reveal={reveal}
        label="Rows"
        head={head}
        onWindow={(shown) => !filtering && pages.want(shown)}
        line={(index) => (
          <Line line={line(index)} index={index} columns={columns} width={width} chosen={chosen} choose={choose} />
        )}
      />
    </section>
  );
}

function orNull(index: number): number | null {
  return index < 0 ? null : index;
}

function Line(props: { line: RowLine | null; index: number; columns: string; width: number; chosen: number | null; choose: (row: number) => void }) {
  const { line, columns, width, chosen, choose } = props;
  const style = { gridTemplateColumns: columns, minWidth: `${width}px` };
  if (line === null) {
    return (
      <div class="row-line waiting" style={style} onClick={() => choose(props.index)}>
        <span class="number soft">{formatCount(props.index)}</span>
      </div>
    );
  }
  return (
    <div class="row-line" style={style} onClick={() => choose(line.row)} aria-current={line.row === chosen ? "true" : undefined}>
      <button type="button" class="row-number number" aria-label={`Row ${line.row}`}>
        {formatCount(line.row)}
      </button>
      {line.cells.map((cell, at) => (
        <CellText key={at} cell={cell} />
      ))}
    </div>
  );
}

function CellText(props: { cell: CellValue }) {
  const { cell } = props;
  if (cell.kind === "null") return <span class="cell soft">–</span>;
  if (cell.size !== undefined && cell.kind !== "bytes") {
    return (
      <span class="cell">
        <span class="chip">{cell.kind}</span> <span class="soft">{formatBytes(cell.size)}</span>
      </span>
    );
  }
  // The direction of the text is the cell's own, so that a text that runs from right to left is cut at its end, not at its start.
  return (
    <span class={`cell ${cell.kind}`} dir="auto" title={cell.of === undefined ? undefined : `${formatCount(cell.of)} in all`}>
      <Foreign text={cell.text} apart={false} />
      {cell.of !== undefined && <span class="soft">…</span>}
    </span>
  );
}

function FilterBar(props: {
  where: string;
  rows: number;
  input: { current: HTMLInputElement | null };
  rowInput: { current: HTMLInputElement | null };
  jump: (row: number) => void;
}) {
  const { where, input, rowInput } = props;
  const apply = (event: Event) => {
    event.preventDefault();
    const text = input.current?.value.trim() ?? "";
    replaceQuery(new Map([["where", text === "" ? null : text]]));
    input.current?.blur();
  };
  const jump = (event: Event) => {
    event.preventDefault();
    const text = (rowInput.current?.value ?? "").replaceAll(/[,_\s]/g, "");
    if (/^\d{1,16}$/.test(text)) props.jump(Math.min(props.rows - 1, Number(text)));
    rowInput.current?.blur();
  };
  const leave = (event: KeyboardEvent) => event.key === "Escape" && (event.currentTarget as HTMLElement).blur();
  return (
    <div class="filter-bar">
      <form onSubmit={apply} class="filter">
        <label class="soft" for="where">
          where
        </label>
        <input
          id="where"
          key={where}
          ref={input}
          defaultValue={where}
          placeholder="lang == 'en' and len(text) > 100"
          spellcheck={false}
          autocomplete="off"
          onKeyDown={leave}
          title="An expression over the fields (/)"
        />
        {where !== "" && (
          <button type="button" class="quiet" onClick={() => replaceQuery(new Map([["where", null]]))}>
            Clear
          </button>
        )}
      </form>
      <form onSubmit={jump} class="jump">
        <label class="soft" for="row-number">
          row
        </label>
        <input id="row-number" ref={rowInput} inputMode="numeric" placeholder="#" autocomplete="off" onKeyDown={leave} title="Go to a row by its number (#)" />
      </form>
    </div>
  );
}

function Words(props: { version: VersionDetail; filtering: boolean; filtered: FilterState; looked: number | null }) {
  const { version, filtering, filtered, looked } = props;
  if (!filtering) {
    const sampled = looked !== null && looked < version.rows;
    return (
      <p class="soft small rows-words">
        {formatPlural(version.rows, "row")}.{" "}
        {looked !== null && (sampled ? `Bars above the columns show ${formatCount(looked)} rows, taken evenly from all of them; a click filters.` : "Bars show all rows; a click filters.")}
      </p>
    );
  }
  if (filtered.problem !== "") {
    return (
      <p class="fail small rows-words" role="alert">
        {visible(filtered.problem)}
      </p>
    );
  }
  return (
    <p class="small rows-words" role="status">
      <strong>{formatPlural(filtered.rows.length, "row")}</strong> pass{filtered.rows.length === 1 ? "es" : ""}, {formatCount(filtered.looked_at)} of{" "}
      {formatPlural(version.rows, "row")} looked at.{" "}
      {filtered.failed > 0 && <span class="warn">{formatPlural(filtered.failed, "row")} could not be computed ({visible(filtered.reason)}). </span>}
      {filtered.scanning ? (
        <Scan looked={filtered.looked_at} rows={version.rows} stop={filtered.stop} />
      ) : filtered.busy ? (
        "Looking…"
      ) : (
        filtered.next !== null && (
          <>
            <button type="button" class="link" onClick={filtered.further}>
              Look further
            </button>{" "}
            <button type="button" class="link" onClick={filtered.scan} title={`Reads all rows, and pauses after ${formatCount(PASSING_MAX)} that pass`}>
              Look at all rows
            </button>
          </>
        )
      )}
    </p>
  );
}

function Scan(props: { looked: number; rows: number; stop: () => void }) {
  const share = props.looked / Math.max(1, props.rows);
  return (
    <span class="scan">
      <progress value={share} aria-label="Rows looked at" /> {Math.floor(100 * share)} %{" "}
      <button type="button" class="link" onClick={props.stop}>
        Stop
      </button>
    </span>
  );
}

/** Pages of rows that were asked for, kept while they are near; asking waits until the reader rests. */
function usePages(version: VersionDetail) {
  const kept = useRef(new Map<number, readonly RowLine[] | "asked">());
  const timer = useRef(0);
  const [, redraw] = useState(0);
  const requests = useMemo(() => new AbortController(), [version.address]);
  useEffect(
    () => () => {
      requests.abort();
      clearTimeout(timer.current);
    },
    [requests],
  );
  const ask = (chunk: number) => {
    if (kept.current.has(chunk)) return;
    kept.current.set(chunk, "asked");
    question("rows", { at: version.address, start: chunk * CHUNK, count: CHUNK })
      .ask(requests.signal)
      .then((page) => kept.current.set(chunk, page.rows))
      .catch(() => kept.current.delete(chunk))
      .finally(() => redraw((count) => count + 1));
    for (const old of kept.current.keys()) {
      if (kept.current.size <= CHUNKS_KEPT) break;
      kept.current.delete(old);
    }
  };
  const want = (shown: Window) => {
    clearTimeout(timer.current);
    const chunks: number[] = [];
    for (let chunk = Math.floor(shown.first / CHUNK); chunk * CHUNK < shown.first + shown.count; chunk++) chunks.push(chunk);
    timer.current = setTimeout(() => chunks.forEach(ask), kept.current.size === 0 ? 0 : 60);
  };
  const line = (index: number): RowLine | null => {
    const chunk = kept.current.get(Math.floor(index / CHUNK));
    return chunk === undefined || chunk === "asked" ? null : (chunk[index % CHUNK] ?? null);
  };
  return { want, line };
}
