// Mouse and touch on the timeline: hover, click, drag to move, Ctrl and wheel (or pinch) to zoom.
// A plain wheel stays what it is everywhere: it scrolls the page.

import { useEffect, useRef } from "preact/hooks";

import { moveRange, zoomRange, type Range } from "./range";

/** How far the pointer may move while it is down for that to be a click. */
const CLICK_SLACK_PX = 4;

interface PointerUse {
  readonly range: Range;
  readonly setRange: (wanted: Range) => void;
  /** Position inside the frame, or null when the pointer left it. */
  readonly onHover: (x: number | null, y: number | null) => void;
  readonly onClick: (x: number, y: number) => void;
}

interface Drag {
  readonly x: number;
  readonly y: number;
  readonly range: Range;
  moved: boolean;
}

export function usePointer(frame: { current: HTMLElement | null }, use: PointerUse): void {
  const latest = useRef(use);
  latest.current = use;
  useEffect(() => {
    const box = frame.current;
    if (box === null) return undefined;
    const listening = new AbortController();
    const { signal } = listening;
    let drag: Drag | null = null;
    const place = (event: MouseEvent): [number, number] => {
      const edge = box.getBoundingClientRect();
      return [event.clientX - edge.left, event.clientY - edge.top];
    };
    const down = (event: PointerEvent) => {
      const [x, y] = place(event);
      if (event.button === 0 && x < box.clientWidth) drag = { x, y, range: latest.current.range, moved: false };
    };
    const move = (event: PointerEvent) => {
      const [x, y] = place(event);
      if (drag === null) return latest.current.onHover(x, y);
      if (!drag.moved && Math.abs(x - drag.x) < CLICK_SLACK_PX) return undefined;
      if (!drag.moved) box.setPointerCapture(event.pointerId);
      drag.moved = true;
      latest.current.onHover(null, null);
      const perPixel = (drag.range.to_ns - drag.range.from_ns) / box.clientWidth;
      return latest.current.setRange(moveRange(drag.range, (drag.x - x) * perPixel));
    };
    const up = (event: PointerEvent) => {
      const [x, y] = place(event);
      if (drag !== null && !drag.moved && Math.abs(y - drag.y) < CLICK_SLACK_PX) latest.current.onClick(x, y);
      drag = null;
    };
    const wheel = (event: WheelEvent) => onWheel(event, box, latest.current, place(event)[0]);
    box.addEventListener("pointerdown", down, { signal });
    box.addEventListener("pointermove", move, { signal });
    box.addEventListener("pointerup", up, { signal });
    box.addEventListener("pointercancel", () => (drag = null), { signal });
    box.addEventListener("pointerleave", () => latest.current.onHover(null, null), { signal });
    box.addEventListener("wheel", wheel, { signal, passive: false });
    return () => listening.abort();
  }, []);
}

function onWheel(event: WheelEvent, box: HTMLElement, use: PointerUse, x: number): void {
  const { range, setRange } = use;
  const perPixel = (range.to_ns - range.from_ns) / box.clientWidth;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    setRange(zoomRange(range, Math.exp(-event.deltaY / 300), range.from_ns + x * perPixel));
  } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    setRange(moveRange(range, (event.deltaX || event.deltaY) * perPixel));
  }
}
