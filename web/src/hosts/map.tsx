// The map: a cell for each host on a canvas. The pointer or the arrow keys choose one, which is said in words below, aloud for those who hear
// the page; Enter opens it, z shows its rack alone.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { formatCount, visible } from "../format";
import { onThemeChange } from "../theme";
import { hostWords, troubles, type Board } from "./board";
import type { Live } from "./follow";
import { beside, hitTest, layOut, type Layout } from "./layout";
import { paintAll, paintSome, readHostInks, type Scene } from "./paint";

/** Pixels of the map, unless smaller cells could not be seen. */
const HEIGHT = 460;
/** How long the words about a host that is chosen by keys rest before they are said. */
const SAID_MS = 250;

interface MapProps {
  readonly live: Live;
  readonly isFound: Uint8Array | null;
  /** The rack that is shown alone. */
  readonly rack: number | null;
  readonly chosen: number;
  readonly choose: (place: number) => void;
  readonly open: (place: number) => void;
  readonly zoom: (rack: number | null) => void;
  readonly summary: string;
}

export function HostMap(props: MapProps) {
  const { live, isFound, rack, chosen } = props;
  const { board } = live;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  const [pointed, setPointed] = useState<{ place: number; x: number; y: number } | null>(null);
  const layout = useMemo(() => (width === 0 ? null : layOut(board.racks, board.rackNames.length, width, HEIGHT, rack)), [board, width, rack]);
  const drawn = useRef<Scene | null>(null);
  useLayoutEffect(() => {
    const element = canvas.current;
    if (element === null) return undefined;
    const measure = () => setWidth(element.parentElement?.clientWidth ?? 0);
    measure();
    const size = new ResizeObserver(measure);
    size.observe(element.parentElement ?? element);
    const ended = onThemeChange(() => setTheme((number) => number + 1));
    return () => {
      size.disconnect();
      ended();
    };
  }, []);
  useLayoutEffect(() => {
    const ctx = canvas.current?.getContext("2d");
    if (ctx === null || ctx === undefined || layout === null) return;
    const unit = devicePixelRatio;
    ctx.canvas.width = Math.max(1, Math.round(width * unit));
    ctx.canvas.height = Math.max(1, Math.round(layout.height * unit));
    drawn.current = { board, layout, inks: readHostInks(ctx.canvas.parentElement ?? document.body), isFound, unit };
    paintAll(ctx, drawn.current);
    requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("hosts-painted")));
  }, [board, layout, isFound, theme]);
  useEffect(() => {
    const ctx = canvas.current?.getContext("2d");
    const scene = drawn.current;
    if (ctx === null || ctx === undefined || scene === null || scene.board !== board || live.moved === null || live.moved.length === 0) return;
    paintSome(ctx, scene, live.moved);
    performance.mark("hosts-moved", { detail: live.moved.length });
  }, [live]);
  const find = (event: MouseEvent): number => {
    const box = canvas.current?.getBoundingClientRect();
    return box === undefined || layout === null ? -1 : hitTest(layout, event.clientX - box.left, event.clientY - box.top);
  };
  const point = (event: MouseEvent) => {
    const place = find(event);
    const box = canvas.current?.getBoundingClientRect();
    setPointed(place < 0 || box === undefined ? null : { place, x: event.clientX - box.left, y: event.clientY - box.top });
  };
  const press = (event: KeyboardEvent) => {
    if (layout === null || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = afterKey(event.key, layout, chosen);
    if (next !== null) props.choose(next);
    else if (event.key === "Enter" && chosen >= 0) props.open(chosen);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="host-map">
      <div class="host-canvas" style={{ minHeight: `${layout?.height ?? HEIGHT}px` }}>
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-roledescription="map of hosts"
          aria-label={`${props.summary}. Arrow keys choose a host, Enter opens it, z shows its rack, w goes to the worst.`}
          aria-describedby="host-said"
          style={{ height: `${layout?.height ?? HEIGHT}px` }}
          onKeyDown={press}
          onMouseMove={point}
          onMouseLeave={() => setPointed(null)}
          onClick={(event) => {
            const place = find(event);
            if (place < 0) return;
            props.choose(place);
            props.open(place);
          }}
          onDblClick={(event) => {
            const place = find(event);
            if (place >= 0) props.zoom(rack === null ? (board.racks[place] ?? null) : null);
          }}
        />
        {layout !== null && chosen >= 0 && <Frame layout={layout} place={chosen} />}
        {pointed !== null && (
          <p class="host-tip" role="presentation" style={{ left: `${Math.min(pointed.x + 14, Math.max(0, width - 320))}px`, top: `${pointed.y + 18}px` }}>
            {visible(hostWords(board, pointed.place))}
          </p>
        )}
      </div>
      <Said words={chosen < 0 ? "" : visible(hostWords(board, chosen))} />
    </div>
  );
}

/** The frame around the chosen cell. */
function Frame(props: { layout: Layout; place: number }) {
  const { layout } = props;
  const at = layout.numbers[props.place] ?? -1;
  if (at < 0) return null;
  const side = Math.max(layout.size + 1, 7);
  const shift = (side - layout.size + layout.gap) / 2;
  const [x, y] = [layout.columns[at]! * layout.size - shift, layout.rows[at]! * layout.size - shift];
  return <span class="host-frame" aria-hidden="true" style={{ left: `${x}px`, top: `${y}px`, width: `${side}px`, height: `${side}px` }} />;
}

/** What is chosen, in words. What changes with every second is not said aloud each time. */
function Said(props: { words: string }) {
  const [said, setSaid] = useState("");
  const place = props.words.split(" · ")[0]?.replace(/ for .*/, "") ?? "";
  useEffect(() => {
    const timer = setTimeout(() => setSaid(props.words), SAID_MS);
    return () => clearTimeout(timer);
  }, [place]);
  return (
    <>
      <p class="host-at small number" aria-hidden="true">
        {props.words === "" ? "No host is chosen: point at one, or press w for the worst." : props.words}
      </p>
      <p id="host-said" class="unseen" role="status">
        {said}
      </p>
    </>
  );
}

/** The host that a key chooses; null for keys that choose none. */
function afterKey(key: string, layout: Layout, chosen: number): number | null {
  switch (key) {
    case "ArrowRight":
      return beside(layout, chosen, 1, 0);
    case "ArrowLeft":
      return beside(layout, chosen, -1, 0);
    case "ArrowDown":
      return beside(layout, chosen, 0, 1);
    case "ArrowUp":
      return beside(layout, chosen, 0, -1);
    case "Home":
      return layout.order[0] ?? -1;
    case "End":
      return layout.order[layout.order.length - 1] ?? -1;
    default:
      return null;
  }
}

/** The host that needs somebody most; the one with the lowest place where all are well. */
export function worstOf(board: Board): number {
  const [worst] = troubles(board);
  return worst?.places[0] ?? (board.count > 0 ? 0 : -1);
}

export function wordsOfCounts(counts: ReadonlyMap<string, number>): string {
  return [...counts].map(([state, count]) => `${formatCount(count)} ${state}`).join(", ");
}

