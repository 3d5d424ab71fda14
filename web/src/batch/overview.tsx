// The whole batch at a glance: a line for every row, in it every token, in the colours of the grid. It is the
// picture of the packing too: where documents begin, and what is padding. A click goes there.

import { useEffect, useRef } from "preact/hooks";

import { onThemeChange } from "../theme";
import type { TokenBatch } from "./batch";
import { colourNames, painter, type Colouring } from "./colour";

interface OverviewProps {
  readonly batch: TokenBatch;
  readonly by: Colouring;
  /** First and last token in view. */
  readonly view: readonly [number, number];
  readonly chosen: number | null;
  readonly go: (index: number) => void;
}

/** Pixels of a row at least, of the picture, and tokens across it at most. */
const LINE_MIN = 2;
const HEIGHT_MAX = 168;
const WIDTH_MAX = 4096;

export function Overview(props: OverviewProps) {
  const { batch, view, chosen } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const line = Math.max(LINE_MIN, Math.min(10, Math.floor(HEIGHT_MAX / batch.rows)));
  const height = Math.min(HEIGHT_MAX, batch.rows * line);
  useEffect(() => {
    const draw = () => canvas.current !== null && paint(canvas.current, batch, props.by);
    draw();
    return onThemeChange(draw);
  }, [batch, props.by]);
  const place = (index: number): [number, number] => [(index % batch.length) / batch.length, Math.floor(index / batch.length)];
  const [fromToken, fromRow] = place(view[0]);
  const [toToken, toRow] = place(view[1]);
  const oneRow = fromRow === toRow;
  const step = height / batch.rows;
  const window = {
    top: `${fromRow * step}px`,
    height: `${Math.max(2, (toRow - fromRow + 1) * step)}px`,
    left: oneRow ? `${fromToken * 100}%` : "0",
    width: oneRow ? `max(3px, ${(toToken - fromToken) * 100}%)` : "100%",
  };
  const click = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const row = Math.min(batch.rows - 1, Math.floor(((event.clientY - box.top) / box.height) * batch.rows));
    const token = Math.min(batch.length - 1, Math.floor(((event.clientX - box.left) / box.width) * batch.length));
    props.go(row * batch.length + token);
  };
  const dot = chosen === null ? null : place(chosen);
  return (
    <div class="overview" style={{ height: `${height}px` }} onClick={click} title="The whole batch: a line for every row. Click to go there.">
      <canvas ref={canvas} role="img" aria-label={`All ${batch.rows} rows of ${batch.length} tokens, coloured by ${props.by}`} />
      <div class="overview-view" style={window} />
      {dot !== null && <div class="overview-dot" style={{ left: `${dot[0] * 100}%`, top: `${dot[1] * step}px`, height: `${Math.max(3, step)}px` }} />}
    </div>
  );
}

/** The colours of classes as numbers that an image holds. */
function colourWords(host: HTMLElement, names: readonly string[]): Uint32Array {
  const probe = document.createElement("i");
  host.append(probe);
  const screen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const words = names.map((name) => {
    probe.className = `tk ${name}`;
    if (screen === null) return 0xff888888;
    screen.clearRect(0, 0, 1, 1);
    screen.fillStyle = getComputedStyle(host).backgroundColor;
    screen.fillRect(0, 0, 1, 1);
    screen.fillStyle = getComputedStyle(probe).backgroundColor;
    screen.fillRect(0, 0, 1, 1);
    return new Uint32Array(screen.getImageData(0, 0, 1, 1).data.buffer)[0] ?? 0;
  });
  probe.remove();
  return Uint32Array.from(words);
}

function paint(canvas: HTMLCanvasElement, batch: TokenBatch, by: Colouring): void {
  const context = canvas.getContext("2d");
  if (context === null || batch.ids.length === 0) return;
  // A screen shows no more columns than this; of a longer row every so manyth token is drawn.
  const width = Math.min(batch.length, WIDTH_MAX);
  canvas.width = width;
  canvas.height = batch.rows;
  const colours = colourWords(canvas.parentElement ?? document.body, colourNames(batch, by));
  const image = context.createImageData(width, batch.rows);
  const pixels = new Uint32Array(image.data.buffer);
  const colour = painter(batch, by);
  const step = batch.length / width;
  for (let row = 0; row < batch.rows; row++) {
    for (let x = 0; x < width; x++) pixels[row * width + x] = colours[colour(row * batch.length + Math.floor(x * step))] ?? 0;
  }
  context.putImageData(image, 0, 0);
}
