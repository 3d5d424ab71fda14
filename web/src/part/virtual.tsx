// A list of any length in a window of fixed height: only the lines that can be seen are in the page.
//
// A browser cannot scroll further than some ten million pixels, so a long list gets a scaled scrollbar: the bar stands
// for the whole list, and the wheel and the keys still move by lines. Line 10⁹ costs what line 0 costs.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Pixels of the tallest element that browsers lay out right; above it scrolling is scaled. */
const HEIGHT_MAX = 4_000_000;

export interface Window {
  readonly first: number;
  readonly count: number;
}

interface VirtualProps {
  readonly count: number;
  readonly lineHeight: number;
  /** Line that has to be visible; the list moves when it changes. */
  readonly reveal: number | null;
  readonly label: string;
  readonly head?: ComponentChildren;
  readonly headHeight: number;
  readonly onWindow?: (shown: Window) => void;
  readonly line: (index: number) => ComponentChildren;
}

export function Virtual(props: VirtualProps) {
  const { count, lineHeight, headHeight } = props;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState(600);
  const [at, setAt] = useState({ first: 0, top: 0 });
  const whole = count * lineHeight;
  const scaled = whole > HEIGHT_MAX;
  const height = Math.min(whole, HEIGHT_MAX);
  const fits = Math.max(1, Math.floor((view - headHeight) / lineHeight));
  const last = Math.max(0, count - fits);
  const room = Math.max(1, height - (view - headHeight));

  const moveTo = (wanted: number) => {
    const first = Math.max(0, Math.min(last, Math.round(wanted)));
    const top = scaled ? (last === 0 ? 0 : (first / last) * room) : first * lineHeight;
    if (box.current !== null) box.current.scrollTop = top;
    setAt({ first, top: box.current?.scrollTop ?? top });
  };
  const follow = () => {
    const top = box.current?.scrollTop ?? 0;
    // Setting the position by line moves the bar by less than a pixel; what we set ourselves is not read back.
    if (scaled && Math.abs(top - at.top) < 1.5) return;
    const first = scaled ? Math.round((top / room) * last) : Math.floor(top / lineHeight);
    setAt({ first: Math.max(0, Math.min(last, first)), top });
  };
  const latest = useRef({ moveTo, at, scaled, fits });
  latest.current = { moveTo, at, scaled, fits };

  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const size = new ResizeObserver(() => setView(element.clientHeight));
    size.observe(element);
    const wheel = (event: WheelEvent) => {
      const now = latest.current;
      if (!now.scaled || event.ctrlKey || event.deltaY === 0) return;
      event.preventDefault();
      const lines = event.deltaMode === 0 ? event.deltaY / 30 : event.deltaMode === 2 ? event.deltaY * now.fits : event.deltaY;
      now.moveTo(now.at.first + (Math.abs(lines) < 1 ? Math.sign(lines) : lines));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      size.disconnect();
      element.removeEventListener("wheel", wheel);
    };
  }, []);
  useLayoutEffect(() => {
    const { reveal } = props;
    if (reveal === null || (reveal >= at.first && reveal < at.first + fits)) return;
    moveTo(reveal - Math.floor(fits / 3));
  }, [props.reveal, count, fits]);

  const shown = Math.min(count - at.first, fits + 2);
  useEffect(() => props.onWindow?.({ first: at.first, count: shown }), [at.first, shown]);
  const keys = (event: KeyboardEvent) => {
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: at.first + 1,
      ArrowUp: at.first - 1,
      PageDown: at.first + fits,
      PageUp: at.first - fits,
      Home: 0,
      End: last,
    };
    const wanted = moves[event.key];
    if (wanted === undefined || event.target !== box.current) return;
    event.preventDefault();
    moveTo(wanted);
  };
  const offset = scaled ? at.top : at.first * lineHeight;
  return (
    <div class="virtual" ref={box} onScroll={follow} onKeyDown={keys} tabIndex={0} role="region" aria-label={props.label}>
      {props.head}
      <div class="virtual-room" style={{ height: `${height}px` }}>
        {Array.from({ length: Math.max(0, shown) }, (_, line) => {
          const index = at.first + line;
          return (
            <div key={index} class="virtual-line" style={{ transform: `translateY(${offset + line * lineHeight}px)`, height: `${lineHeight}px` }}>
              {props.line(index)}
            </div>
          );
        })}
      </div>
    </div>
  );
}
