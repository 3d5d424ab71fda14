// The token grid: lines of one pitch, of which only the visible ones are in the page. Drawn without the framework,
// because a thousand tokens change with every turn of the wheel.

import { CONTINUED, NO_SOURCE, PADDING, PARTIAL, SPECIAL, textOf, type TokenBatch } from "./batch";
import { colourNames, levels, painter, type Colouring } from "./colour";
import { breakLines, lineOf, type Lines } from "./lines";

export interface GridLook {
  readonly by: Colouring;
  readonly ids: boolean;
  /** Numeric columns shown as strips of colour under the tokens. */
  readonly strips: readonly string[];
  /** Tokens to mark, 1 for each; used to compare. */
  readonly marks: Uint8Array | null;
}

export interface GridEvents {
  readonly onHover: (index: number | null, element: HTMLElement | null) => void;
  readonly onChoose: (index: number) => void;
  /** First and last token that can be seen. */
  readonly onView: (first: number, last: number) => void;
}

/** Cells before the tokens of a line. */
const GUTTER = 8;
/** Pixels of the tallest element that browsers lay out right; above it scrolling is scaled. */
const HEIGHT_MAX = 8_000_000;

export class TokenGrid {
  private lines: Lines = { count: 0, starts: new Uint32Array(1), widths: new Uint8Array(0) };
  private shown = new Map<number, HTMLElement>();
  private columns = 0;
  private chosen = -1;
  private frame = 0;
  private readonly room = document.createElement("div");
  private readonly size: ResizeObserver;

  constructor(
    private readonly box: HTMLElement,
    private batch: TokenBatch,
    private look: GridLook,
    private readonly events: GridEvents,
  ) {
    this.room.className = "grid-room";
    box.append(this.room);
    box.addEventListener("scroll", this.schedule, { passive: true });
    this.room.addEventListener("mouseover", this.hover);
    box.addEventListener("mouseleave", this.leave);
    this.room.addEventListener("click", this.click);
    this.size = new ResizeObserver(() => this.arrange());
    this.size.observe(box);
    this.arrange();
  }

  /** Shows another batch, or the same one in another way. */
  update(batch: TokenBatch, look: GridLook): void {
    const again = batch !== this.batch || look.ids !== this.look.ids;
    const top = this.topToken();
    this.batch = batch;
    this.look = look;
    this.box.style.setProperty("--line", `${this.pitch}px`);
    if (again) this.columns = 0;
    this.clear();
    this.arrange();
    if (again && top > 0) this.box.scrollTop = this.lineTop(lineOf(this.lines, Math.min(top, batch.ids.length - 1)));
    this.draw();
  }

  /** Marks a token as chosen and, if asked to, brings it into view. */
  choose(index: number, reveal: boolean): void {
    this.mark(this.chosen, false);
    this.chosen = index;
    if (index >= 0 && reveal) {
      const top = this.lineTop(lineOf(this.lines, index));
      const height = this.box.clientHeight;
      const at = this.box.scrollTop;
      if (top < at || top + this.pitch > at + height) this.box.scrollTop = Math.max(0, top - height / 3);
    }
    this.draw();
    this.mark(index, true);
  }

  close(): void {
    cancelAnimationFrame(this.frame);
    this.size.disconnect();
    this.box.removeEventListener("scroll", this.schedule);
    this.box.removeEventListener("mouseleave", this.leave);
    this.room.remove();
  }

  get pitch(): number {
    return 22 + (this.look.ids ? 13 : 0) + 8 * this.look.strips.length;
  }

  private readonly schedule = (): void => {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  };

  /** Breaks lines anew when the width has changed by a cell or more. */
  private arrange(): void {
    const columns = Math.max(16, Math.floor((this.box.clientWidth - 14) / cellWidth(this.box)) - GUTTER - 1);
    if (columns !== this.columns) {
      const top = this.columns === 0 ? 0 : this.topToken();
      this.columns = columns;
      this.lines = breakLines(this.batch, columns, this.look.ids);
      this.clear();
      this.room.style.height = `${Math.min(HEIGHT_MAX, this.lines.count * this.pitch)}px`;
      if (top > 0) this.box.scrollTop = this.lineTop(lineOf(this.lines, top));
    }
    this.room.style.height = `${Math.min(HEIGHT_MAX, this.lines.count * this.pitch)}px`;
    this.draw();
  }

  private get scale(): number {
    const whole = this.lines.count * this.pitch;
    return whole > HEIGHT_MAX ? (whole - this.box.clientHeight) / (HEIGHT_MAX - this.box.clientHeight) : 1;
  }

  private lineTop(line: number): number {
    return (line * this.pitch) / this.scale;
  }

  private topToken(): number {
    const line = Math.floor((this.box.scrollTop * this.scale) / this.pitch);
    return this.lines.starts[Math.max(0, Math.min(this.lines.count - 1, line))] ?? 0;
  }

  private clear(): void {
    this.room.replaceChildren();
    this.shown.clear();
  }

  private draw(): void {
    const { scrollTop, clientHeight } = this.box;
    const first = Math.max(0, Math.floor((scrollTop * this.scale) / this.pitch));
    const end = Math.min(this.lines.count, first + Math.ceil(clientHeight / this.pitch) + 1);
    const shift = this.scale === 1 ? 0 : scrollTop - first * this.pitch;
    for (const [line, element] of this.shown) {
      if (line < first || line >= end || shift !== 0) {
        element.remove();
        this.shown.delete(line);
      }
    }
    const paint = painter(this.batch, this.look.by);
    const names = colourNames(this.batch, this.look.by);
    const strips = this.look.strips.flatMap((name) => {
      const column = this.batch.numeric.get(name);
      return column === undefined ? [] : [{ column, level: levels(column) }];
    });
    const fresh = document.createDocumentFragment();
    for (let line = first; line < end; line++) {
      if (this.shown.has(line)) continue;
      const element = this.line(line, shift, (index) => {
        const token = this.token(index, names[paint(index)] ?? "plain");
        for (const { column, level } of strips) {
          const strip = document.createElement("u");
          strip.className = this.batch.kinds[index] === PADDING ? "pad" : `level-${level(column[index] ?? NaN)}`;
          token.append(strip);
        }
        return token;
      });
      this.shown.set(line, element);
      fresh.append(element);
    }
    this.room.append(fresh);
    this.mark(this.chosen, true);
    if (end > first) this.events.onView(this.lines.starts[first] ?? 0, (this.lines.starts[end] ?? 1) - 1);
  }

  private line(line: number, shift: number, token: (index: number) => HTMLElement): HTMLElement {
    const { starts } = this.lines;
    const begin = starts[line] ?? 0;
    const element = document.createElement("div");
    element.className = "grid-line";
    element.style.transform = `translateY(${line * this.pitch + shift}px)`;
    const gutter = document.createElement("span");
    const place = begin % this.batch.length;
    gutter.className = place === 0 ? "gutter row-start" : "gutter";
    gutter.textContent = place === 0 ? `row ${this.batch.firstRow + begin / this.batch.length}` : String(place);
    element.append(gutter);
    for (let index = begin; index < (starts[line + 1] ?? begin); index++) element.append(token(index));
    return element;
  }

  private token(index: number, colour: string): HTMLElement {
    const { batch } = this;
    const kind = batch.kinds[index] ?? 0;
    const element = document.createElement("i");
    const text = textOf(batch, index);
    const starts = index % batch.length !== 0 && batch.segments[index] !== batch.segments[index - 1] && kind !== PADDING;
    element.className =
      `tk ${colour}` +
      look(kind, text) +
      (starts ? " begins" : "") +
      (batch.mask[index] === 0 && batch.source[index] !== NO_SOURCE ? " quiet-loss" : "") +
      (this.look.marks?.[index] === 1 ? " differs" : "");
    element.style.width = `calc(${this.lines.widths[index] ?? 1} * var(--cell))`;
    element.dataset["at"] = String(index);
    element.textContent = text;
    if (this.look.ids) {
      const number = document.createElement("small");
      number.textContent = String(batch.ids[index]);
      element.append(number);
    }
    return element;
  }

  private mark(index: number, on: boolean): void {
    this.room.querySelector(`[data-at="${index}"]`)?.classList.toggle("chosen", on);
  }

  private readonly hover = (event: MouseEvent): void => {
    const element = (event.target as HTMLElement).closest<HTMLElement>(".tk");
    this.events.onHover(element === null ? null : Number(element.dataset["at"]), element);
  };

  private readonly leave = (): void => this.events.onHover(null, null);

  private readonly click = (event: MouseEvent): void => {
    const element = (event.target as HTMLElement).closest<HTMLElement>(".tk");
    if (element !== null) this.events.onChoose(Number(element.dataset["at"]));
  };
}

/** How a token that is no plain text is set apart; a character that several tokens share reads as any other. */
function look(kind: number, text: string): string {
  if (kind === SPECIAL) return " special";
  if (kind === PARTIAL && !text.includes("⟨")) return text === CONTINUED ? " within" : "";
  return kind > 1 && kind !== PADDING ? " odd" : "";
}

/** The width of one cell, measured once per size of type and given to the style sheet in whole pixels. */
function cellWidth(box: HTMLElement): number {
  const probe = document.createElement("span");
  probe.className = "cell-probe";
  probe.textContent = "0".repeat(64);
  box.append(probe);
  const width = probe.getBoundingClientRect().width / 64;
  probe.remove();
  box.style.setProperty("--cell", `${width}px`);
  return width;
}
