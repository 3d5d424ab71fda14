// The token grid as a part of a page: keeps the drawn grid in step with what the page wants to show.

import { useEffect, useRef, useState } from "preact/hooks";

import { documentAt, KINDS, textOf, type TokenBatch } from "./batch";
import { TokenGrid, type GridLook } from "./grid";

interface GridProps {
  readonly batch: TokenBatch;
  readonly look: GridLook;
  /** Index of the chosen token; revealed when it changes. */
  readonly chosen: number | null;
  readonly choose: (index: number) => void;
  readonly onView: (first: number, last: number) => void;
  readonly label: string;
}

interface Hover {
  readonly index: number;
  readonly x: number;
  readonly y: number;
}

export function TokenGridView(props: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const grid = useRef<TokenGrid | null>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    if (box.current === null) return undefined;
    grid.current = new TokenGrid(box.current, latest.current.batch, latest.current.look, {
      onHover: (index, element) => {
        const edge = element?.getBoundingClientRect();
        setHover(index === null || edge === undefined ? null : { index, x: edge.left, y: edge.bottom });
      },
      onChoose: (index) => latest.current.choose(index),
      onView: (first, last) => latest.current.onView(first, last),
    });
    // Two frames later what was drawn is on the screen; the benchmark reads the marks.
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("batch-painted")));
    return () => grid.current?.close();
  }, []);
  const { by, ids, strips, marks } = props.look;
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) grid.current?.update(props.batch, props.look);
    first.current = false;
    setHover(null);
  }, [props.batch, by, ids, strips.join(" "), marks]);
  useEffect(() => grid.current?.choose(props.chosen ?? -1, true), [props.chosen, props.batch]);
  return (
    <div class="grid-frame">
      <div class="grid" ref={box} tabIndex={0} role="region" aria-label={props.label} />
      {hover !== null && hover.index < props.batch.ids.length && <Tip batch={props.batch} hover={hover} />}
    </div>
  );
}

function Tip(props: { batch: TokenBatch; hover: Hover }) {
  const { batch, hover } = props;
  const { index } = hover;
  const row = batch.firstRow + Math.floor(index / batch.length);
  const document = documentAt(batch, row, index % batch.length);
  const source = document < 0 ? undefined : batch.sources[batch.documents.source[document] ?? 0];
  const across = hover.x > innerWidth / 2 ? { right: `${Math.max(8, innerWidth - hover.x - 60)}px` } : { left: `${hover.x}px` };
  const down = hover.y > innerHeight - 130 ? { bottom: `${innerHeight - hover.y + 26}px` } : { top: `${hover.y + 4}px` };
  return (
    <div class="tip token-tip" role="status" style={{ ...across, ...down }}>
      <strong class="mono">{textOf(batch, index)}</strong>
      <span>
        id {batch.ids[index]} · {KINDS[batch.kinds[index] ?? 0]} · token {index % batch.length} of row {row}
      </span>
      <span>
        segment {batch.segments[index]}, position {batch.positions[index]} · loss {batch.mask[index] === 0 ? "no" : "yes"}
      </span>
      {[...batch.numeric].map(([name, column]) => (
        <span key={name}>
          {name} {(column[index] ?? NaN).toPrecision(4)}
        </span>
      ))}
      {source !== undefined && (
        <span class="soft">
          {source.version}/row/{batch.documents.sample[document]}
        </span>
      )}
    </div>
  );
}
