// The first thing to read: what costs most, what to do about it, and what else costs time.

import { formatDuration, visible } from "../format";
import type { RunCause, RunDiagnosis, RunOverview } from "../wire/types";
import { formatMeasured, type Measured } from "./units";

/** Other causes that are named. */
const OTHERS_MAX = 4;
/** A cause below this share of the time is noise. */
const SHARE_MIN = 0.01;

export function Headline(props: { diagnosis: RunDiagnosis }) {
  const { diagnosis } = props;
  const named = diagnosis.verdict === "named";
  const others = diagnosis.causes.slice(named ? 1 : 0).filter((cause) => (cause.share ?? 0) >= SHARE_MIN);
  const next = named ? (diagnosis.causes[0]?.next_step ?? "") : "";
  return (
    <section class={`headline ${diagnosis.verdict}`} aria-label="Diagnosis">
      <p class="headline-line">{strong(visible(diagnosis.line))}</p>
      {next !== "" && (
        <p class="headline-next">
          <span class="soft">Next:</span> {visible(next)}
        </p>
      )}
      {others.length > 0 && (
        <ul class="causes">
          {others.slice(0, OTHERS_MAX).map((cause) => (
            <Cause key={cause.line} cause={cause} />
          ))}
        </ul>
      )}
    </section>
  );
}

function Cause(props: { cause: RunCause }) {
  const { cause } = props;
  return (
    <li title={visible(cause.next_step)}>
      <span class="cause-bar" aria-hidden="true">
        <i style={{ width: `${Math.min(100, 100 * (cause.share ?? 0))}%` }} />
      </span>
      <span>{visible(cause.line)}</span>
    </li>
  );
}

/** The share in front of a line stands out; the words stay as they are. */
function strong(line: string) {
  const share = /^[\d.]+ %/.exec(line)?.[0] ?? "";
  return (
    <>
      {share !== "" && <strong>{share}</strong>}
      {line.slice(share.length)}
    </>
  );
}

interface TileProps {
  readonly name: string;
  readonly label: string;
  readonly value: Measured;
  readonly unit: string;
  readonly note: string;
}

/** The numbers of the report, each as `penstock report --json` has it. */
export function Tiles(props: { run: RunOverview }) {
  const { speed, mfu, goodput, memory, ledger, marks } = props.run;
  const cost = marks.incidents.reduce((sum, incident) => sum + incident.device_ns, 0);
  const device = typeof memory.memory_peak === "number";
  const tiles: TileProps[] = [
    { name: "tokens_per_s", label: "Tokens / s", value: speed.tokens_per_s, unit: "rate", note: typeof speed.tokens === "number" ? `${formatMeasured(speed.tokens, "rate")} in all` : "no tokens recorded" },
    { name: "p50_ns", label: "Step, median", value: speed.p50_ns, unit: "ns", note: `${formatMeasured(speed.steps_per_s, "number")} steps/s` },
    { name: "p99_ns", label: "Step, 99 %", value: speed.p99_ns, unit: "ns", note: `of ${formatMeasured(speed.steps, "number")} steps` },
    { name: "mfu", label: "MFU", value: mfu.value, unit: "share", note: typeof mfu.value === "number" ? "of the peak" : visible(mfu.reason) },
    { name: "goodput", label: "Goodput", value: goodput.runtime, unit: "share", note: `of ${formatDuration(ledger.wall_ns)} device time` },
    { name: "memory", label: device ? "Device memory" : "Memory", value: device ? memory.memory_peak : memory.rss, unit: "bytes", note: device ? "allocated, peak" : "of the process" },
    { name: "incidents", label: "Incidents", value: marks.incidents.length, unit: "number", note: cost > 0 ? `cost ${formatDuration(cost)}` : "no time lost" },
  ];
  return (
    <dl class="tiles">
      {tiles.map((tile) => (
        <div key={tile.name} data-number={tile.name} data-value={String(tile.value)}>
          <dt>{tile.label}</dt>
          <dd class={typeof tile.value === "number" ? "tile-value" : "tile-value absent"}>{visible(formatMeasured(tile.value, tile.unit))}</dd>
          <dd class="tile-note">{tile.note}</dd>
        </div>
      ))}
    </dl>
  );
}
