// The four stages of a token's sample side by side: raw, templated, tokens, model input. What is chosen in one is marked in
// the others, by the characters that each token was made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { question } from "../ask";
import { formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Foreign } from "../part/foreign";
import { Outcome } from "../part/state";
import type { FieldPreview, SampleStagesAnswer, TemplatedPiece } from "../wire/types";
import { documentAt, type TokenBatch } from "./batch";

interface StagesProps {
  readonly batch: TokenBatch;
  readonly index: number;
  readonly address: string;
  readonly choose: (index: number) => void;
}

/** Tokens, and characters, that are shown on both sides of the chosen one. */
const AROUND = 80;
const CHARACTERS_AROUND = 400;

export function StagesView(props: StagesProps) {
  const { batch, index } = props;
  const row = batch.firstRow + Math.floor(index / batch.length);
  const document = documentAt(batch, row, index % batch.length);
  const first = (row - batch.firstRow) * batch.length + (batch.documents.at[document] ?? 0);
  // One question for the whole document: walking through its tokens asks nothing more.
  const address = props.address.replace(/token=\d+$/, `token=${first % batch.length}`);
  const { loaded, again } = useLoaded(question("stages", { address }));
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

function All(props: StagesProps & { stages: SampleStagesAnswer; at: number; first: number }) {
  const { batch, stages, at, choose } = props;
  const { tokens } = stages;
  const box = useReveal(at);
  const span = tokens.spans?.[at] ?? null;
  const from = Math.max(0, at - AROUND);
  const around = tokens.ids.slice(from, at + AROUND);
  const here = (token: number): number | null => {
    for (const stretch of stages.input) {
      const [[at = 0], [first = 0, end = 0]] = [stretch.row_span, stretch.token_span];
      if (first <= token && token < end) return (stretch.row - batch.firstRow) * batch.length + at + token - first;
    }
    return null;
  };
  const pick = (token: number) => {
    const index = here(token);
    if (index !== null && index >= 0 && index < batch.ids.length) choose(index);
  };
  const shown = `${formatPlural(tokens.ids.length, "token")}${around.length < tokens.ids.length ? `, ${formatCount(around.length)} shown` : ""}`;
  return (
    <div class="stages" ref={box}>
      <Stage name="raw" words="the row as it is stored">
        <Raw fields={stages.raw.fields} text={span === null ? null : wordsAt(stages, span)} />
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
            <button key={from + by} type="button" tabIndex={-1} class={classOf(from + by === at, tokens.kinds[from + by] === "special", false)} onClick={() => pick(from + by)}>
              {tokens.joined[from + by]}
            </button>
          ))}
        </p>
        {tokens.cut !== "" && <p class="cut">Cut: {tokens.cut}.</p>}
      </Stage>
      <Stage name="model input" words={stages.input.map((one) => `row ${one.row}, ${one.row_span.join("–")}`).join("; ")}>
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
function Templated(props: { pieces: readonly TemplatedPiece[]; span: readonly number[] | null }) {
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
function wordsAt(stages: SampleStagesAnswer, span: readonly number[]): { before: string; own: string; after: string } | null {
  const [a = 0, b = 0] = span;
  const piece = stages.templated?.pieces.find((one) => one.start <= a && b <= one.stop);
  const signs = piece === undefined ? [] : [...piece.text];
  if (piece === undefined || signs.length !== piece.stop - piece.start) return null;
  const [from, to] = [a - piece.start, b - piece.start];
  return { before: signs.slice(Math.max(0, from - 24), from).join(""), own: signs.slice(from, to).join(""), after: signs.slice(to, to + 24).join("") };
}

function Raw(props: { fields: readonly FieldPreview[]; text: { before: string; own: string; after: string } | null }) {
  const { text } = props;
  const needle = text === null ? "" : text.before + text.own + text.after;
  const texts = props.fields.filter((field) => field.kind === "text" || field.kind === "nested").sort((one, other) => shownText(other).length - shownText(one).length);
  const field = (needle === "" ? undefined : texts.find((one) => shownText(one).includes(needle))) ?? texts[0];
  if (field === undefined) return <p class="soft small">The row has no text.</p>;
  const whole = shownText(field);
  const found = needle === "" || text === null ? -1 : whole.indexOf(needle);
  const [place, own] = found < 0 || text === null ? [0, ""] : [found + text.before.length, text.own];
  const begin = Math.max(0, place - CHARACTERS_AROUND);
  const end = place + own.length + CHARACTERS_AROUND;
  return (
    <div class="raw-field">
      <p class="stage-text">
        <span class="soft">{visible(field.name)}: </span>
        {begin > 0 && <span class="soft">… </span>}
        <Foreign text={whole.slice(begin, own === "" ? end : place)} lines />
        {own !== "" && <span class="here">{own}</span>}
        {own !== "" && <Foreign text={whole.slice(place + own.length, end)} lines />}
        {(whole.length > end || field.cut !== undefined) && <span class="soft"> …</span>}
      </p>
      {field.cut !== undefined && <p class="cut">Cut: {field.cut} are not shown.</p>}
    </div>
  );
}

function shownText(field: FieldPreview): string {
  return typeof field.preview === "string" ? field.preview : JSON.stringify(field.preview);
}
