// One row of a batch: its documents, where positions begin again, and which tokens may look at which: blocks of a
// causal mask, one for every document.

import { useEffect, useRef } from "preact/hooks";

import { formatCount, formatPlural, visible } from "../format";
import { addressRoute } from "../route";
import { onThemeChange } from "../theme";
import type { TokenBatch } from "./batch";

interface Piece {
  readonly at: number;
  readonly stop: number;
  readonly source: number;
  readonly sample: number;
  readonly start: number;
}

/** Pixels of the picture, and documents that are named below it. */
const SIZE = 168;
const LISTED_MAX = 60;

export function piecesOf(batch: TokenBatch, row: number): Piece[] {
  const { documents } = batch;
  const found: Piece[] = [];
  for (let at = 0; at < documents.row.length; at++) {
    if (documents.row[at] !== row) continue;
    found.push({
      at: documents.at[at] ?? 0,
      stop: documents.stop[at] ?? 0,
      source: documents.source[at] ?? 0,
      sample: documents.sample[at] ?? 0,
      start: documents.start[at] ?? 0,
    });
  }
  return found;
}

/** Documents whose positions do not begin at 0: attention and positions would disagree there. */
export function unresetOf(batch: TokenBatch, row: number): number {
  const base = (row - batch.firstRow) * batch.length;
  return piecesOf(batch, row).filter((piece) => batch.positions[base + piece.at] !== 0).length;
}

export function Packing(props: { batch: TokenBatch; row: number; go: (token: number) => void }) {
  const { batch, row, go } = props;
  const pieces = piecesOf(batch, row);
  const real = pieces.reduce((sum, piece) => sum + piece.stop - piece.at, 0);
  const unreset = unresetOf(batch, row);
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const draw = () => canvas.current !== null && drawBlocks(canvas.current, pieces, batch.length);
    draw();
    return onThemeChange(draw);
  }, [batch, row]);
  const padding = batch.length - real;
  return (
    <section class="packing">
      <h3>
        Row {row}: {formatPlural(pieces.length, "document")}
        {padding > 0 && <span class="soft">, {formatCount(padding)} padding</span>}
      </h3>
      {unreset > 0 && <p class="warn small">{formatPlural(unreset, "document")} do not begin at position 0.</p>}
      <div class="blocks">
        <canvas ref={canvas} width={SIZE * 2} height={SIZE * 2} role="img" aria-label="Which tokens attend to which: one causal block for every document" />
        <ol>
          {pieces.slice(0, LISTED_MAX).map((piece) => (
            <li key={piece.at}>
              <button type="button" class="link number" onClick={() => go(piece.at)}>
                {formatCount(piece.at)}–{formatCount(piece.stop)}
              </button>{" "}
              <a href={addressRoute(`${batch.sources[piece.source]?.version}/row/${piece.sample}`)}>
                {visible(batch.sources[piece.source]?.alias ?? "?")} {formatCount(piece.sample)}
              </a>
              {piece.start > 0 && <span class="soft"> from its token {formatCount(piece.start)}</span>}
            </li>
          ))}
          {pieces.length > LISTED_MAX && <li class="cut">{formatPlural(pieces.length - LISTED_MAX, "more document")} not listed</li>}
        </ol>
      </div>
    </section>
  );
}

function drawBlocks(canvas: HTMLCanvasElement, pieces: readonly Piece[], length: number): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const host = canvas.parentElement ?? document.body;
  const probe = document.createElement("i");
  host.append(probe);
  const colourOf = (name: string): string => {
    probe.className = `tk ${name}`;
    return getComputedStyle(probe).backgroundColor;
  };
  const size = canvas.width;
  const scale = size / length;
  context.fillStyle = colourOf("pad");
  context.fillRect(0, 0, size, size);
  pieces.forEach((piece, number) => {
    const [begin, end] = [piece.at * scale, Math.max(piece.stop * scale, piece.at * scale + 1)];
    context.fillStyle = colourOf(`seg-${(number + 1) % 6}`);
    context.beginPath();
    context.moveTo(begin, begin);
    context.lineTo(begin, end);
    context.lineTo(end, end);
    context.closePath();
    context.fill();
  });
  probe.remove();
}
