// What happened: terms and events on a line of time, and the newest of them in words.

import { formatPlural, visible } from "../format";
import type { HostEventLine, HostHead } from "../wire/types";
import { formatMoment } from "./playback";

/** Events in words. */
const LISTED = 40;
const KINDS: Readonly<Record<HostEventLine["kind"], string>> = { term: "leader", host: "hosts", gang: "ranks", fault: "fault" };

export interface Term {
  readonly term: number;
  /** Where it begins and how long it is, as shares of the line. */
  readonly from: number;
  readonly share: number;
}

/** Where events stand between the first of them and now, from 0 to 1; of a job that is played between its beginning and its end. */
export function spanOf(lines: readonly HostEventLine[], head: HostHead): readonly [number, number] {
  if (head.length_s !== null) return [0, Math.max(head.length_s, 1)];
  const first = lines[0]?.at_s ?? head.at_s;
  return [first, Math.max(head.at_s, first + 1)];
}

/** Terms one after the other, as far as events name theirs. */
export function termsOf(lines: readonly HostEventLine[], head: HostHead): readonly Term[] {
  const [first, end] = spanOf(lines, head);
  const starts: { term: number; at: number }[] = [];
  for (const line of lines) {
    const last = starts[starts.length - 1];
    if (line.term > 0 && (last === undefined || line.term > last.term)) starts.push({ term: line.term, at: last === undefined ? first : line.at_s });
  }
  return starts.map(({ term, at }, number) => {
    const until = starts[number + 1]?.at ?? end;
    return { term, from: (at - first) / (end - first), share: (until - at) / (end - first) };
  });
}

export function Timeline(props: { lines: readonly HostEventLine[]; head: HostHead; seek: ((at_s: number) => void) | null }) {
  const { lines, head, seek } = props;
  const [first, end] = spanOf(lines, head);
  const terms = termsOf(lines, head);
  const newest = lines.slice(-LISTED).reverse();
  const when = (at_s: number) => (head.length_s === null ? new Date(1000 * at_s).toLocaleTimeString() : formatMoment(at_s));
  const jump = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    seek?.(first + ((event.clientX - box.left) / box.width) * (end - first));
  };
  return (
    <section class="host-timeline">
      <div class="section-head">
        <h2>What happened</h2>
        <span class="legend small soft">
          {(Object.keys(KINDS) as HostEventLine["kind"][]).map((kind) => (
            <span key={kind}>
              <i class={`host-tick ${kind}`} /> {KINDS[kind]}
            </span>
          ))}
        </span>
      </div>
      <div class={seek === null ? "host-strip" : "host-strip seekable"} data-at={head.at_s} role="img" aria-label={`${formatPlural(lines.length, "event")}; ${formatPlural(terms.length, "term")}`} onClick={jump}>
        {terms.map((term) => (
          <span key={term.term} class="host-term" style={{ left: `${100 * term.from}%`, width: `${100 * term.share}%` }} title={`term ${term.term.toString(16)}`}>
            term {term.term.toString(16)}
          </span>
        ))}
        {lines.map((line, number) => (
          <i key={number} class={`host-tick ${line.kind}`} style={{ left: `${(100 * (line.at_s - first)) / (end - first)}%` }} title={`${when(line.at_s)} ${visible(line.what)}`} />
        ))}
        {head.length_s !== null && <i class="host-now" style={{ left: `${(100 * head.at_s) / (end - first)}%` }} />}
      </div>
      {newest.length === 0 ? (
        <p class="soft small">Nothing yet.</p>
      ) : (
        <ol class="host-events number">
          {newest.map((line, number) => (
            <li key={`${line.at_s}-${number}`} class={line.kind}>
              <time class="soft">{when(line.at_s)}</time>
              <span class="host-kind">{KINDS[line.kind]}</span>
              <span>{visible(line.what)}</span>
            </li>
          ))}
        </ol>
      )}
    </section>
  );
}
