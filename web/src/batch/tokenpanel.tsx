// One token: what it is, where it came from, and the four stages of its document side by side: raw, templated, tokens,
// model input. What is chosen in one is marked in the others.

import type { ComponentChildren } from "preact";

import { asFields, asList, asNumber, asText, orNull } from "../decode";
import { readRow, type WholeRow } from "../data/read";
import { formatCount, visible } from "../format";
import { useLoaded } from "../load";
import { Foreign } from "../part/foreign";
import { Outcome } from "../part/state";
import { addressRoute } from "../route";
import { documentAt, KINDS, textOf, type TokenBatch } from "./batch";

interface TokenDetail {
  readonly bytes: string | null;
  readonly shard: string;
  readonly byteRange: readonly number[] | null;
}

interface TokenPanelProps {
  readonly batch: TokenBatch;
  readonly index: number;
  readonly address: string;
  readonly choose: (index: number) => void;
}

const AROUND = 60;
const RAW_AROUND = 300;

export function TokenPanel(props: TokenPanelProps) {
  const { batch, index, address } = props;
  const row = batch.firstRow + Math.floor(index / batch.length);
  const token = index % batch.length;
  const document = documentAt(batch, row, token);
  const [detail] = useLoaded(`api/token?address=${encodeURIComponent(address)}`, readDetail);
  const source = document < 0 ? null : batch.sources[batch.documents.source[document] ?? 0];
  const sample = batch.documents.sample[document] ?? 0;
  const facts: [string, string][] = [
    ["id", String(batch.ids[index])],
    ["kind", KINDS[batch.kinds[index] ?? 0] ?? "?"],
    ["segment", String(batch.segments[index])],
    ["position", String(batch.positions[index])],
    ["loss", batch.mask[index] === 0 ? "does not count" : "counts"],
    ...[...batch.numeric].map(([name, column]): [string, string] => [visible(name), numberText(column[index] ?? NaN)]),
    ["bytes", detail.phase === "ready" ? (detail.value.bytes?.replaceAll(/(..)(?=.)/g, "$1 ") ?? "unknown") : "…"],
  ];
  return (
    <section class="token-panel" aria-label="Chosen token">
      <h3>
        <span class="token-text">{textOf(batch, index)}</span>
        <span class="soft">
          row {row}, token {formatCount(token)}
        </span>
      </h3>
      <dl class="token-facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {source === null || source === undefined ? (
        <p class="soft">Padding: it comes from nowhere.</p>
      ) : (
        <>
          <p class="origin-line">
            from <a href={addressRoute(`${source.version}/row/${sample}`)}>{`${source.version}/row/${sample}`}</a>
            {detail.phase === "ready" && detail.value.shard !== "" && (
              <span class="soft">
                {" "}
                · {visible(detail.value.shard)}
                {detail.value.byteRange !== null && `, bytes ${formatCount(detail.value.byteRange[0] ?? 0)}–${formatCount(detail.value.byteRange[1] ?? 0)}`}
              </span>
            )}
          </p>
          <Stages {...props} document={document} version={source.version} sample={sample} />
        </>
      )}
    </section>
  );
}

function Stages(props: TokenPanelProps & { document: number; version: string; sample: number }) {
  const { batch, index, document, choose } = props;
  const [raw, again] = useLoaded(`api/row?at=${encodeURIComponent(props.version)}&row=${props.sample}`, readRow);
  const base = Math.floor(index / batch.length) * batch.length;
  const first = base + (batch.documents.at[document] ?? 0);
  const end = base + (batch.documents.stop[document] ?? 0);
  const from = Math.max(first, index - AROUND);
  const to = Math.min(end, index + AROUND);
  const around = Array.from({ length: to - from }, (_, by) => from + by);
  const said = `${formatCount(end - first)} tokens here${from > first || to < end ? `, ${formatCount(to - from)} of them shown` : ""}`;
  return (
    <div class="stages">
      <Stage name="raw" words="the row as it is stored">
        <Outcome of={raw} again={again} show={(row) => <Raw row={row} context={contextOf(batch, first, end, index)} />} />
      </Stage>
      <Stage name="templated" words="the text that these tokens stand for">
        <p class="stage-text">
          {around.map((at) => (
            <span key={at} class={at === index ? "here" : undefined} onClick={() => choose(at)}>
              {textOf(batch, at).replaceAll("⏎", "⏎\n")}
            </span>
          ))}
        </p>
      </Stage>
      <Stage name="tokens" words={said}>
        <p class="stage-tokens">
          {around.map((at) => (
            <button key={at} type="button" tabIndex={-1} class={`${at === index ? "here" : ""}${batch.kinds[at] === 1 ? " special" : ""}`} onClick={() => choose(at)}>
              {textOf(batch, at)}
            </button>
          ))}
        </p>
      </Stage>
      <Stage name="model input" words="number, position, loss">
        <p class="stage-tokens">
          {around.map((at) => (
            <button key={at} type="button" tabIndex={-1} class={`${at === index ? "here" : ""}${batch.mask[at] === 0 ? " no-loss" : ""}`} onClick={() => choose(at)} title={`position ${batch.positions[at]}`}>
              {String(batch.ids[at])}
            </button>
          ))}
        </p>
      </Stage>
    </div>
  );
}

function Stage(props: { name: string; words: string; children: ComponentChildren }) {
  return (
    <section class="stage">
      <h4>
        {props.name} <span class="soft">{props.words}</span>
      </h4>
      {props.children}
    </section>
  );
}

/** Text around the token, to find its place in the raw row; marks for hidden characters end it. */
function contextOf(batch: TokenBatch, first: number, end: number, index: number): { before: string; own: string; after: string } {
  const join = (from: number, to: number) => Array.from({ length: Math.max(0, to - from) }, (_, by) => textOf(batch, from + by)).join("");
  const before = join(Math.max(first, index - 8), index).split(/[⏎⇥⟨⟩␀-␡]/).pop() ?? "";
  const after = join(index + 1, Math.min(end, index + 9)).split(/[⏎⇥⟨⟩␀-␡]/)[0] ?? "";
  return { before, own: textOf(batch, index), after };
}

function Raw(props: { row: WholeRow; context: { before: string; own: string; after: string } }) {
  const { before, own, after } = props.context;
  const needle = before + own + after;
  const findable = needle.length > 2 && !/[⏎⇥⟨]/.test(own);
  const texts = props.row.fields.filter((field) => ["text", "list", "object"].includes(field.kind)).sort((a, b) => b.text.length - a.text.length);
  const field = (findable ? texts.find((one) => one.text.includes(needle)) : undefined) ?? texts[0];
  if (field === undefined) return <p class="soft small">The row has no text.</p>;
  const at = findable ? field.text.indexOf(needle) : -1;
  const place = at < 0 ? 0 : at + before.length;
  const begin = Math.max(0, place - RAW_AROUND);
  const end = place + own.length + RAW_AROUND;
  return (
    <div class="raw-field">
      <span class="soft">{visible(field.name)}</span>
      <p class="stage-text">
        {begin > 0 && <span class="soft">… </span>}
        <Foreign text={field.text.slice(begin, at < 0 ? end : place)} lines />
        {at >= 0 && (
          <>
            <span class="here">
              <Foreign text={own} />
            </span>
            <Foreign text={field.text.slice(place + own.length, end)} lines />
          </>
        )}
        {field.text.length > end && <span class="soft"> …</span>}
      </p>
      {at < 0 && <p class="soft small">The token's text does not stand in the row as it is; a stage made it.</p>}
    </div>
  );
}

function readDetail(value: unknown): TokenDetail {
  const token = asFields(value);
  const origins = asList(token["origin"]).map(asFields);
  const origin = origins[0];
  return {
    bytes: orNull(token["bytes"], asText),
    shard: origin === undefined ? "" : asText(origin["shard"]),
    byteRange: origin === undefined ? null : orNull(origin["byte_range"], (span) => asList(span).map(asNumber)),
  };
}

function numberText(value: number): string {
  return Number.isInteger(value) ? formatCount(value) : value.toPrecision(5);
}
