import { describe, expect, it } from "vitest";

import { applyMoves, boardOf, countStates, found, hostWords, lateBeats, leaseLeft, shownState, troubles, troubleWords, type Board } from "../src/hosts/board";
import { beside, hitTest, layOut } from "../src/hosts/layout";
import { packed } from "../src/hosts/paint";
import { faster, formatMoment, later } from "../src/hosts/playback";
import { spanOf, termsOf } from "../src/hosts/timeline";
import type { HostBoard, HostHead, HostMoves } from "../src/wire/types";

const troubled = (board: Board) => troubles(board).map((trouble) => trouble.places);
const HEAD: HostHead = { title: "exp7", at_s: 100, phase: "running", problem: "", is_over: false, term: 2, leader: "gpu0", voters: ["gpu0", "gpu1"], frozen: "", lease_s: 30, heartbeat_s: 1, length_s: null, speed: 1, next_s: null };

function answer(count: number): HostBoard {
  const all = (value: number | null) => ({ values: [value], counts: [count] });
  return {
    job: "exp7",
    stamp: "e.1.1",
    head: HEAD,
    hosts: {
      count,
      names: Array.from({ length: count }, (_, place) => `gpu${place}`).join("\n"),
      racks: { values: ["a", "b", "a"], counts: [2, count - 3, 1] },
      states: { values: ["here"], counts: [count] },
      rank_shift: { values: [0, null], counts: [count - 1, 1] },
      since_s: all(40),
      due_s: all(null),
      lease_end_s: all(null),
    },
    events: { mark: "none", lines: [] },
  };
}

function moves(changes: Partial<HostMoves["moved"] & object>): HostMoves {
  const places = changes.places ?? [];
  const none = places.map(() => null);
  return { stamp: "e.1.2", head: { ...HEAD, at_s: 104 }, moved: { places, states: places.map(() => "here"), ranks: places, since_s: none, due_s: none, lease_end_s: none, ...changes }, events: null };
}

describe("a board", () => {
  it("is made of runs", () => {
    const board = boardOf(answer(6));
    expect([...board.racks]).toEqual([0, 0, 1, 1, 1, 0]);
    expect(board.rackNames).toEqual(["a", "b"]);
    expect([...board.ranks]).toEqual([0, 1, 2, 3, 4, -1]);
    expect(countStates(board)).toEqual(new Map([["here", 6]]));
    expect(hostWords(board, 1)).toBe("gpu1 here for 1:00 · host rank 1 · lease 30 s · rack a · votes");
  });

  it("is what it would be as a new one after any moves", () => {
    const board = boardOf(answer(6));
    const moved = applyMoves(board, moves({ places: [2, 3], states: ["unheard", "here"], since_s: [101, 40], due_s: [99, 103], lease_end_s: [124, null] }));
    expect(moved).toEqual([2, 3]);
    expect(board.stamp).toBe("e.1.2");
    expect([2, 3, 4].map((place) => shownState(board, place))).toEqual(["unheard", "late", "here"]);
    expect([lateBeats(board, 2), leaseLeft(board, 2), leaseLeft(board, 4), leaseLeft(board, 5)]).toEqual([5, 20, 30, null]);
    expect(troubled(board)).toEqual([[2], [3]]);
    expect(hostWords(board, 2)).toBe("gpu2 unheard for 3 s · host rank 2 · lease 20 s · 5 heartbeats late · rack b");
    applyMoves(board, moves({ places: [2, 3] }));
    expect(troubled(board)).toEqual([]);
  });

  it("says in one line that a rack has failed, the worst first", () => {
    const board = boardOf(answer(6));
    applyMoves(board, moves({ places: [0, 1, 5, 3], states: ["unheard", "unheard", "unheard", "gone"], since_s: [101, 101, 101, 90], lease_end_s: [124, 124, 124, null] }));
    expect(troubled(board)).toEqual([[3], [0, 1, 5]]);
    expect(troubles(board).map((trouble) => troubleWords(board, trouble))).toEqual(["gpu3 gone for 14 s · host rank 3 · rack b", "3 hosts of rack a unheard for 3 s · lease 20 s · gpu0 and others"]);
  });

  it("has to be asked for again where there are no moves, and stays as it was until then", () => {
    const board = boardOf(answer(6));
    expect(applyMoves(board, { ...moves({}), moved: null })).toBeNull();
    expect(board.stamp).toBe("e.1.1");
  });

  it("takes places that are not there and states that are unknown", () => {
    const board = boardOf(answer(6));
    applyMoves(board, moves({ places: [1, 99], states: ["resting", "gone"] }));
    expect(shownState(board, 1)).toBe("joining");
    expect(countStates(board).get("here")).toBe(5);
  });

  it("is searched by name, rack and state", () => {
    const board = boardOf(answer(6));
    applyMoves(board, moves({ places: [2], states: ["gone"] }));
    expect(found(board, "  ")).toBeNull();
    expect([...(found(board, "GONE b") ?? [])]).toEqual([0, 0, 1, 0, 0, 0]);
    expect([...(found(board, "gpu5") ?? [])]).toEqual([0, 0, 0, 0, 0, 1]);
  });

  it("has no host of a job that has none", () => {
    const empty = boardOf({ ...answer(3), hosts: { ...answer(3).hosts, count: 0, names: "", racks: { values: [], counts: [] }, states: { values: [], counts: [] }, rank_shift: { values: [], counts: [] } } });
    expect([empty.names.length, countStates(empty).size, troubled(empty).length]).toEqual([0, 0, 0]);
    expect(layOut(empty.racks, 0, 800, 400, null).height).toBeGreaterThan(0);
  });
});

describe("a layout", () => {
  const sizes: [number, number, number, number][] = [
    [1, 1, 1200, 460],
    [3, 2, 1200, 460],
    [513, 64, 1200, 460],
    [2048, 1024, 700, 460],
    [100_000, 3125, 1200, 460],
    [5000, 1, 300, 100],
    [40, 40, 1, 1],
  ];
  it.each(sizes)("of %i hosts in %i racks on %i x %i gives each a cell of its own, found again by its pixels", (count, rackCount, width, height) => {
    const racks = Uint32Array.from({ length: count }, (_, place) => Math.floor((place * rackCount) / count));
    const layout = layOut(racks, rackCount, width, height, null);
    const cells = new Set<number>();
    let [column, row] = [0, 0];
    layout.order.forEach((place, at) => {
      cells.add(layout.rows[at]! * 65_536 + layout.columns[at]!);
      column = Math.max(column, layout.columns[at]!);
      row = Math.max(row, layout.rows[at]!);
      if (at % 97 === 0) expect(hitTest(layout, (layout.columns[at]! + 0.5) * layout.size, (layout.rows[at]! + 0.5) * layout.size)).toBe(place);
    });
    expect(column).toBeLessThan(layout.across);
    expect((row + 1) * layout.size).toBeLessThanOrEqual(layout.height);
    expect([layout.order.length, cells.size]).toEqual([count, count]);
    if (layout.size > 2) expect(layout.height).toBeLessThanOrEqual(height);
    expect(hitTest(layout, -1, 0)).toBe(-1);
    expect(hitTest(layout, 0, layout.height + 5)).toBe(-1);
  });

  it("draws one rack alone, larger", () => {
    const racks = Uint32Array.from({ length: 640 }, (_, place) => place >> 3);
    const [all, one] = [layOut(racks, 80, 600, 300, null), layOut(racks, 80, 600, 300, 7)];
    expect([...one.order]).toEqual([56, 57, 58, 59, 60, 61, 62, 63]);
    expect(one.size).toBeGreaterThan(all.size);
    expect(one.numbers[0]).toBe(-1);
  });

  it("leads by arrows to every host and never out of the map", () => {
    const racks = Uint32Array.from({ length: 203 }, (_, place) => Math.floor(place / 7));
    const layout = layOut(racks, 29, 600, 300, null);
    const seen = new Set<number>();
    let place = layout.order[0]!;
    for (let step = 0; step < 203; step++) {
      seen.add(place);
      const below = beside(layout, place, 0, 1);
      expect(layout.rows[layout.numbers[below]!]! - layout.rows[layout.numbers[place]!]!).toBeLessThanOrEqual(1);
      expect(layout.numbers[beside(layout, below, 0, -1)]).toBeGreaterThanOrEqual(0);
      place = beside(layout, place, 1, 0);
    }
    expect(seen.size).toBe(203);
    expect(beside(layout, layout.order[0]!, -1, 0)).toBe(layout.order[0]);
    expect(beside(layout, -1, 1, 0)).toBe(layout.order[0]);
  });
});

describe("playing", () => {
  const begun = { position_s: 0, speed: 10, isPaused: false };
  it("jumps over quiet time, never over something that happens, and stops at the end", () => {
    expect(later(begun, 0.1, 5000, 10_000).position_s).toBe(4990);
    expect(later({ ...begun, position_s: 4990 }, 0.1, 5000, 10_000).position_s).toBe(4991);
    expect(later(begun, 0.1, null, 10_000).position_s).toBe(10_000);
    expect(later({ ...begun, isPaused: true }, 9, 5000, 10_000).position_s).toBe(0);
  });
  it("has speeds and moments", () => {
    expect([faster(begun, 1).speed, faster(begun, -9).speed, faster(begun, 99).speed]).toEqual([30, 1, 3600]);
    expect([formatMoment(59), formatMoment(90_061)]).toEqual(["00:00:59", "1 d 01:01:01"]);
  });
});

describe("a timeline", () => {
  it("has terms one after the other, from the first event to now", () => {
    const lines = [0, 10, 60].map((at, number) => ({ at_s: at, kind: "host" as const, what: "x", term: [1, 1, 3][number]! }));
    expect(spanOf(lines, HEAD)).toEqual([0, 100]);
    expect(termsOf(lines, HEAD)).toEqual([
      { term: 1, from: 0, share: 0.6 },
      { term: 3, from: 0.6, share: 0.4 },
    ]);
    expect(spanOf([], { ...HEAD, length_s: 7 })).toEqual([0, 7]);
    expect(termsOf([], HEAD)).toEqual([]);
  });
});

it("a colour is a pixel", () => {
  expect(packed("rgb(1, 2, 3)").toString(16)).toBe("ff030201");
  expect(packed("color(srgb 1 0 0)").toString(16)).toBe("ff0000ff");
});
