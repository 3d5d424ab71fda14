// The head of a column: its name and kind, and how its values are spread. A click on a bar filters by it; with Shift
// held it filters further.

import { formatCount, visible } from "../format";
import { replaceQuery } from "../route";
import type { ColumnBar, ColumnSpread, SchemaField } from "../wire/types";

/** Values of a field that are named; the rest is counted. */
const CHOICES_SHOWN = 3;

export function ColumnHead(props: { field: SchemaField; spread: ColumnSpread | null; where: string }) {
  const { field, spread, where } = props;
  return (
    <div class="column-head" title={`${visible(field.name)}: ${field.kind}${field.optional ? ", optional" : ""}`}>
      <div class="column-name">
        <strong>{visible(field.name)}</strong> <span class="soft">{field.kind}</span>
      </div>
      {spread !== null && (spread.of === "values" ? <Choices spread={spread} where={where} /> : <Bars spread={spread} where={where} />)}
    </div>
  );
}

function Bars(props: { spread: ColumnSpread; where: string }) {
  const { spread, where } = props;
  if (spread.bars.length === 0) return null;
  const most = Math.max(...spread.bars.map((bar) => bar.count), 1);
  return (
    <>
      <div class="bars" onKeyDown={walk} role="group" aria-label={`How ${visible(spread.name)} is spread`}>
        {spread.bars.map((bar, at) => (
          <button
            key={bar.label}
            type="button"
            tabIndex={at === 0 ? 0 : -1}
            aria-label={`${bar.label}: ${formatCount(bar.count)} rows`}
            disabled={bar.where === null}
            title={`${spread.of === "lengths" ? "length " : ""}${bar.label}: ${formatCount(bar.count)}`}
            onClick={(event) => filter(bar, where, event)}
          >
            <span style={{ height: `${Math.max(bar.count === 0 ? 0 : 6, (bar.count / most) * 100)}%` }} />
          </button>
        ))}
      </div>
      <div class="ends soft">
        <span>{short(spread.low)}</span>
        {spread.missing > 0 && <span>{formatCount(spread.missing)} missing</span>}
        <span>{spread.of === "lengths" ? `length ${short(spread.high)}` : short(spread.high)}</span>
      </div>
    </>
  );
}

function Choices(props: { spread: ColumnSpread; where: string }) {
  const { spread, where } = props;
  const total = spread.bars.reduce((sum, bar) => sum + bar.count, spread.missing) || 1;
  const rest = spread.bars.length - CHOICES_SHOWN;
  return (
    <div class="choices" onKeyDown={walk} role="group" aria-label={`How ${visible(spread.name)} is spread`}>
      {spread.bars.slice(0, CHOICES_SHOWN).map((bar, at) => (
        <button key={bar.label} type="button" tabIndex={at === 0 ? 0 : -1} disabled={bar.where === null} onClick={(event) => filter(bar, where, event)} title={`${visible(bar.label)}: ${formatCount(bar.count)}`}>
          <span class="share" style={{ width: `${(bar.count / total) * 100}%` }} />
          <span class="choice">{visible(bar.label)}</span>
          <span class="soft">{Math.round((bar.count / total) * 100)} %</span>
        </button>
      ))}
      {(rest > 0 || spread.missing > 0) && (
        <div class="soft ends">
          <span>{rest > 0 && `${rest} more`}</span>
          <span>{spread.missing > 0 && `${formatCount(spread.missing)} missing`}</span>
        </div>
      )}
    </div>
  );
}

/** One stop of the Tab key for each column; arrows go from bar to bar. */
function walk(event: KeyboardEvent): void {
  const by = ["ArrowRight", "ArrowDown"].includes(event.key) ? 1 : ["ArrowLeft", "ArrowUp"].includes(event.key) ? -1 : 0;
  if (by === 0) return;
  event.preventDefault();
  event.stopPropagation();
  const bars = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLButtonElement>("button:enabled")];
  bars[Math.max(0, Math.min(bars.length - 1, bars.indexOf(event.target as HTMLButtonElement) + by))]?.focus();
}

function filter(bar: ColumnBar, where: string, event: MouseEvent): void {
  if (bar.where === null) return;
  const next = event.shiftKey && where !== "" ? `(${where}) and (${bar.where})` : bar.where;
  replaceQuery(new Map([["where", next]]));
}

function short(value: number | undefined): string {
  if (value === undefined) return "";
  return Number.isInteger(value) ? formatCount(value) : value.toPrecision(3);
}
