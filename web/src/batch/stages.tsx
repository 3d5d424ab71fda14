// The four stages of a token's sample side by side: raw, templated, tokens, model input. What is chosen in one is marked in
// the others, by the characters that each token was made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { asFields, asList, asNumber, asText, orNull, type Fields } from "../decode";
import { formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Foreign } from "../part/foreign";
import { Outcome } from "../part/state";
import { documentAt, type TokenBatch } from "./batch";

interface Piece {
  readonly start: number;
  readonly stop: number;
  readonly text: string;
  readonly role: string;
  readonly trained: boolean;
}

interface RawField {
  readonly name: string;
  readonly kind: string;
  readonly text: string;
  readonly cut: string;
}

interface Stretch {
  readonly row: number;
  readonly at: number;
  readonly first: number;
  readonly end: number;
  readonly loss: number;
}

interface Stages {
  readonly raw: readonly RawField[];
  readonly templated: { readonly pieces: readonly Piece[]; readonly problem: string } | null;
  readonly ids: readonly number[];
  readonly texts: readonly string[];
  readonly kinds: readonly string[];
  readonly spans: readonly (readonly number[])[] | null;
  readonly cut: string;
  readonly input: readonly Stretch[];
}

interface StagesProps {
  readonly batch: TokenBatch;
  readonly index: number;
  readonly address: string;
  readonly choose: (index: number) => void;
}

const AROUND = 80;
const CHARACTERS_AROUND = 400;

export function StagesView(props: StagesProps) {
  const { batch, index } = props;
  const row = batch.firstRow + Math.floor(index / batch.length);
  const document = documentAt(batch, row, index % batch.length);
  const first = (row - batch.firstRow) * batch.length + (batch.documents.at[document] ?? 0);
  // One question for the whole document: walking through its tokens asks nothing more.
  const address = props.address.replace(/token=\d+$/, `token=${first % batch.length}`);
  const [loaded, again] = useLoaded(`api/stages?address=${encodeURIComponent(address)}`, readStages);
  const at = index - first + (batch.documents.start[document] ?? 0);
  return <Outcome of={loaded} again={again} show={(stages) => <All {...props} stages={stages} at={at} first={first} />} />;
}

/** Brings the marked place of every stage into view, without moving the page around it. */
function useReveal(at: number): { current: HTMLDivElement | null } {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    for (const here of box.current?.querySelectorAll<HTMLElement>(".here") ?? []) {
      const frame = here.closest<HTMLElement>(".stage-text, .stage-tokens");
      if (frame !== null) frame.scrollTop = here.offsetTop - frame.offsetTop - frame.clientHeight / 2;
    }
  }, [at]);
  return box;
}

function All(props: StagesProps & { stages: Stages; at: number; first: number }) {
  const { batch, stages, at, choose } = props;
  const box = useReveal(at);
  const span = stages.spans?.[at] ?? null;
  const from = Math.max(0, at - AROUND);
  const around = stages.ids.slice(from, at + AROUND);
  const here = (token: number): number | null => {
    const stretch = stages.input.find((one) => one.first <= token && token < one.end);
    return stretch === undefined ? null : (stretch.row - batch.firstRow) * batch.length + stretch.at + token - stretch.first;
  };
  const pick = (token: number) => {
    const index = here(token);
    if (index !== null && index >= 0 && index < batch.ids.length) choose(index);
  };
  const shown = `${formatPlural(stages.ids.length, "token")}${around.length < stages.ids.length ? `, ${formatCount(around.length)} shown` : ""}`;
  return (
    <div class="stages" ref={box}>
      <Stage name="raw" words="the row as it is stored">
        <Raw fields={stages.raw} text={span === null ? null : wordsAt(stages, span)} />
      </Stage>
      {stages.templated !== null && (
        <Stage name="templated" words="what the tokenizer was given">
          <Templated pieces={stages.templated.pieces} span={span} />
          {stages.templated.problem !== "" && <p class="cut">{visible(stages.templated.problem)}</p>}
        </Stage>
      )}
      <Stage name="tokens" words={shown}>
        <p class="stage-tokens">
          {around.map((_, by) => (
            <button key={from + by} type="button" tabIndex={-1} class={classOf(from + by === at, stages.kinds[from + by] === "special", false)} onClick={() => pick(from + by)}>
              {stages.texts[from + by]}
            </button>
          ))}
        </p>
        {stages.cut !== "" && <p class="cut">Cut: {stages.cut}.</p>}
      </Stage>
      <Stage name="model input" words={stages.input.map((one) => `row ${one.row}, ${one.at}–${one.at + one.end - one.first}`).join("; ")}>
        <p class="stage-tokens">
          {around.map((id, by) => {
            const index = here(from + by);
            const inside = index !== null && index >= 0 && index < batch.ids.length;
            return (
              <button
                key={from + by}
                type="button"
                tabIndex={-1}
                class={classOf(from + by === at, false, !inside || batch.mask[index] === 0)}
                title={inside ? `position ${batch.positions[index]}, ${batch.mask[index] === 0 ? "does not count" : "counts in the loss"}` : "not in this batch"}
                disabled={!inside}
                onClick={() => pick(from + by)}
              >
                {inside ? String(batch.ids[index]) : `(${id})`}
              </button>
            );
          })}
        </p>
      </Stage>
    </div>
  );
}

function classOf(here: boolean, special: boolean, quiet: boolean): string {
  return [here && "here", special && "special", quiet && "no-loss"].filter(Boolean).join(" ");
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

/** Text by pieces, with the token marked; characters of a piece are counted where each is shown as one. */
function Templated(props: { pieces: readonly Piece[]; span: readonly number[] | null }) {
  const [a, b] = [props.span?.[0] ?? -1, props.span?.[1] ?? -1];
  const near = props.span === null ? props.pieces : props.pieces.filter((piece) => piece.stop > a - CHARACTERS_AROUND && piece.start < b + CHARACTERS_AROUND);
  return (
    <p class="stage-text">
      {near[0] !== props.pieces[0] && <span class="soft">… </span>}
      {near.map((piece) => {
        const signs = [...piece.text];
        const exact = signs.length === piece.stop - piece.start;
        const touched = a < piece.stop && b > piece.start && a >= 0;
        const [from, to] = touched && exact ? [Math.max(0, a - piece.start), Math.min(signs.length, b - piece.start)] : touched ? [0, signs.length] : [0, 0];
        const begin = touched && exact ? Math.max(0, from - CHARACTERS_AROUND) : 0;
        return (
          <span key={piece.start} class={`piece${piece.trained ? "" : " no-loss"}${piece.role === "template" ? " special" : ""}`} title={`${piece.role || "text"}${piece.trained ? ", counts in the loss" : ""}`}>
            {begin > 0 && <span class="soft">… </span>}
            {signs.slice(begin, from).join("")}
            {to > from && <span class="here">{signs.slice(from, to).join("")}</span>}
            {signs.slice(to, to + 2 * CHARACTERS_AROUND).join("")}
            {signs.length > to + 2 * CHARACTERS_AROUND && <span class="soft"> …</span>}
          </span>
        );
      })}
      {near[near.length - 1] !== props.pieces[props.pieces.length - 1] && <span class="soft"> …</span>}
    </p>
  );
}

/** The token's characters with some on both sides, to find its place in the raw row. */
function wordsAt(stages: Stages, span: readonly number[]): { before: string; own: string; after: string } | null {
  const [a = 0, b = 0] = span;
  const piece = stages.templated?.pieces.find((one) => one.start <= a && b <= one.stop);
  const signs = piece === undefined ? [] : [...piece.text];
  if (piece === undefined || signs.length !== piece.stop - piece.start) return null;
  const [from, to] = [a - piece.start, b - piece.start];
  return { before: signs.slice(Math.max(0, from - 24), from).join(""), own: signs.slice(from, to).join(""), after: signs.slice(to, to + 24).join("") };
}

function Raw(props: { fields: readonly RawField[]; text: { before: string; own: string; after: string } | null }) {
  const { text } = props;
  const needle = text === null ? "" : text.before + text.own + text.after;
  const texts = props.fields.filter((field) => field.kind === "text" || field.kind === "nested").sort((one, other) => other.text.length - one.text.length);
  const field = (needle === "" ? undefined : texts.find((one) => one.text.includes(needle))) ?? texts[0];
  if (field === undefined) return <p class="soft small">The row has no text.</p>;
  const found = needle === "" || text === null ? -1 : field.text.indexOf(needle);
  const [place, own] = found < 0 || text === null ? [0, ""] : [found + text.before.length, text.own];
  const begin = Math.max(0, place - CHARACTERS_AROUND);
  const end = place + own.length + CHARACTERS_AROUND;
  return (
    <div class="raw-field">
      <p class="stage-text">
        <span class="soft">{visible(field.name)}: </span>
        {begin > 0 && <span class="soft">… </span>}
        <Foreign text={field.text.slice(begin, own === "" ? end : place)} lines />
        {own !== "" && <span class="here">{own}</span>}
        {own !== "" && <Foreign text={field.text.slice(place + own.length, end)} lines />}
        {(field.text.length > end || field.cut !== "") && <span class="soft"> …</span>}
      </p>
      {field.cut !== "" && <p class="cut">Cut: {field.cut} are not shown.</p>}
    </div>
  );
}

function readStages(value: unknown): Stages {
  const stages = asFields(value);
  const tokens = asFields(stages["tokens"]);
  const texts = (one: unknown) => asList(one).map(asText);
  return {
    raw: asList(asFields(stages["raw"])["fields"]).map((one) => readRaw(asFields(one))),
    templated: orNull(stages["templated"], (one) => {
      const templated = asFields(one);
      return { pieces: asList(templated["pieces"]).map((each) => readPiece(asFields(each))), problem: asText(templated["problem"]) };
    }),
    ids: asList(tokens["ids"]).map(asNumber),
    texts: texts(tokens["joined"]),
    kinds: texts(tokens["kinds"]),
    spans: orNull(tokens["spans"], (spans) => asList(spans).map((pair) => asList(pair).map(asNumber))),
    cut: asText(tokens["cut"]),
    input: asList(stages["input"]).map((one) => readStretch(asFields(one))),
  };
}

function readRaw(field: Fields): RawField {
  const preview = field["preview"];
  return {
    name: asText(field["name"]),
    kind: asText(field["kind"]),
    text: typeof preview === "string" ? preview : JSON.stringify(preview),
    cut: orNull(field["cut"], asText) ?? "",
  };
}

function readPiece(piece: Fields): Piece {
  return {
    start: asNumber(piece["start"]),
    stop: asNumber(piece["stop"]),
    text: asText(piece["text"]),
    role: asText(piece["role"]),
    trained: piece["trained"] === true,
  };
}

function readStretch(one: Fields): Stretch {
  const [at = 0] = asList(one["row_span"]).map(asNumber);
  const [first = 0, end = 0] = asList(one["token_span"]).map(asNumber);
  return { row: asNumber(one["row"]), at, first, end, loss: asNumber(one["loss"]) };
}
