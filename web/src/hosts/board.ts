// All hosts of a job as columns: one board at first, and after that only what has moved. A hundred thousand hosts are a few arrays.

import type { HostBoard, HostEvents, HostHead, HostMoves, NumberRuns } from "../wire/types";

/** Host states, the worst first. `late` is a host that is here and was not heard when it should have been. */
export const STATES = ["expired", "gone", "left", "unkillable", "unheard", "excluded", "joining", "late", "here", "spare"] as const;
export type HostState = (typeof STATES)[number];
/** What stands for a state where there is room for a letter. */
export const LETTERS: Readonly<Record<HostState, string>> = { expired: "X", gone: "G", left: "L", unkillable: "K", unheard: "?", excluded: "e", joining: "j", late: "!", here: "", spare: "s" };

/** Places of the two that are most. */
const HERE = STATES.indexOf("here");
/** And of those that are heard too late. */
const LATE = STATES.indexOf("late");
/** A state that is not known here stands between the bad and the good ones. */
const UNKNOWN = STATES.indexOf("joining");

export interface Board {
  readonly job: string;
  readonly count: number;
  readonly names: readonly string[];
  readonly rackNames: readonly string[];
  /** The place in `rackNames` of each host's rack. */
  readonly racks: Uint32Array;
  /** Places in `STATES`; whether a host is late is told apart. */
  readonly states: Uint8Array;
  /** Host ranks, -1 of hosts without. */
  readonly ranks: Int32Array;
  /** Moments in seconds, NaN where there are none. */
  readonly since: Float64Array;
  readonly due: Float64Array;
  readonly leaseEnd: Float64Array;
  head: HostHead;
  stamp: string;
  events: HostEvents;
}

export function boardOf(answer: HostBoard): Board {
  const { hosts } = answer;
  const { count } = hosts;
  const racks = new Uint32Array(count);
  const numbers = new Map<string, number>();
  spread(hosts.racks, (value, first, end) => {
    const number = numbers.get(value) ?? numbers.size;
    numbers.set(value, number);
    racks.fill(number, first, end);
  });
  const states = new Uint8Array(count);
  spread(hosts.states, (value, first, end) => states.fill(codeOf(value), first, end));
  const ranks = new Int32Array(count);
  spread(hosts.rank_shift, (shift, first, end) => {
    for (let place = first; place < end; place++) ranks[place] = shift === null ? -1 : place + shift;
  });
  return {
    job: answer.job,
    count,
    names: count === 0 ? [] : hosts.names.split("\n"),
    rackNames: [...numbers.keys()],
    racks,
    states,
    ranks,
    since: moments(hosts.since_s, count),
    due: moments(hosts.due_s, count),
    leaseEnd: moments(hosts.lease_end_s, count),
    head: answer.head,
    stamp: answer.stamp,
    events: answer.events,
  };
}

/** Changes a board to what it is now; the places that moved, or null where all of it has to be asked for again. */
export function applyMoves(board: Board, moves: HostMoves): readonly number[] | null {
  if (moves.moved === null) return null;
  const { moved } = moves;
  moved.places.forEach((place, at) => {
    if (place >= board.count) return;
    board.states[place] = codeOf(moved.states[at] ?? "");
    board.ranks[place] = moved.ranks[at] ?? -1;
    board.since[place] = moved.since_s[at] ?? Number.NaN;
    board.due[place] = moved.due_s[at] ?? Number.NaN;
    board.leaseEnd[place] = moved.lease_end_s[at] ?? Number.NaN;
  });
  board.head = moves.head;
  board.stamp = moves.stamp;
  if (moves.events !== null) board.events = moves.events;
  return moved.places;
}

/** What a host is shown as, as a place in `STATES`. */
export function shownCode(board: Board, place: number): number {
  const code = board.states[place] ?? UNKNOWN;
  return code === HERE && !Number.isNaN(board.due[place] ?? Number.NaN) ? LATE : code;
}

export function shownState(board: Board, place: number): HostState {
  return STATES[shownCode(board, place)] ?? "joining";
}

/** How many hosts are in each state. */
export function countStates(board: Board): ReadonlyMap<HostState, number> {
  const counts = new Uint32Array(STATES.length);
  for (let place = 0; place < board.count; place++) counts[shownCode(board, place)]! += 1;
  return new Map(STATES.flatMap((state, code) => (counts[code] ? [[state, counts[code]] as const] : [])));
}

/** Hosts for which every typed word occurs in name, rack or state; null for all. */
export function found(board: Board, typed: string): Uint8Array | null {
  const words = typed.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return null;
  // Looked up by rack and state, so that nothing is made for each host.
  const inRack = words.map((word) => board.rackNames.map((name) => name.toLowerCase().includes(word)));
  const inState = words.map((word) => STATES.map((state) => state.includes(word)));
  const isFound = new Uint8Array(board.count);
  for (let place = 0; place < board.count; place++) {
    const name = board.names[place] ?? "";
    const rack = board.racks[place] ?? 0;
    const code = shownCode(board, place);
    isFound[place] = words.every((word, at) => inState[at]?.[code] === true || inRack[at]?.[rack] === true || name.toLowerCase().includes(word)) ? 1 : 0;
  }
  return isFound;
}

/** Hosts of one rack in the same state. */
export interface Trouble {
  readonly code: number;
  readonly places: readonly number[];
}

/** What is not as it should be, the worst first; of equal ones what changed last. Hosts of one rack that are alike are one, so a rack that fails is a line. */
export function troubles(board: Board): readonly Trouble[] {
  const found = new Map<number, { code: number; places: number[]; since: number }>();
  for (let place = 0; place < board.count; place++) {
    const code = shownCode(board, place);
    if (code >= HERE) continue;
    const rack = board.racks[place] ?? 0;
    // Without racks each host is alone.
    const key = board.rackNames.length > 1 ? code * board.rackNames.length + rack : -1 - place;
    const known = found.get(key) ?? { code, places: [], since: 0 };
    known.places.push(place);
    known.since = Math.max(known.since, board.since[place] || 0);
    found.set(key, known);
  }
  return [...found.values()].sort((one, two) => one.code - two.code || two.since - one.since || one.places[0]! - two.places[0]!);
}

/** A line about it. */
export function troubleWords(board: Board, trouble: Trouble): string {
  const [first = 0] = trouble.places;
  if (trouble.places.length === 1) return hostWords(board, first);
  const rack = board.rackNames[board.racks[first] ?? 0] ?? "";
  const since = board.since[first] ?? Number.NaN;
  const words = `${trouble.places.length} hosts of ${rack.toLowerCase().startsWith("rack") ? rack : `rack ${rack}`} ${STATES[trouble.code]}`;
  const left = leaseLeft(board, first);
  return [Number.isNaN(since) ? words : `${words} for ${formatSpan(board.head.at_s - since)}`, left === null ? "" : `lease ${formatSpan(left)}`, `${board.names[first]} and others`].filter((part) => part !== "").join(" · ");
}

/** How many heartbeats of a host are missing. */
export function lateBeats(board: Board, place: number): number {
  const due = board.due[place] ?? Number.NaN;
  return Number.isNaN(due) ? 0 : Math.max(0, (board.head.at_s - due) / board.head.heartbeat_s);
}

/** How long its ranks may run on unheard, at most; null where it may run none. */
export function leaseLeft(board: Board, place: number): number | null {
  const state = STATES[board.states[place] ?? UNKNOWN] ?? "joining";
  if ((board.ranks[place] ?? -1) < 0 || !["here", "unheard", "unkillable", "joining"].includes(state)) return null;
  const end = board.leaseEnd[place] ?? Number.NaN;
  return Number.isNaN(end) ? board.head.lease_s : Math.max(0, end - board.head.at_s);
}

/** A host in words: for tooltips, and for those who hear the page. */
export function hostWords(board: Board, place: number): string {
  const since = board.since[place] ?? Number.NaN;
  const rank = board.ranks[place] ?? -1;
  const beats = Math.floor(lateBeats(board, place));
  const left = leaseLeft(board, place);
  const rack = board.rackNames[board.racks[place] ?? 0] ?? "";
  const name = board.names[place] ?? "";
  const parts = [
    `${name} ${shownState(board, place)}${Number.isNaN(since) ? "" : ` for ${formatSpan(board.head.at_s - since)}`}`,
    rank < 0 ? "no host rank" : `host rank ${rank}`,
    left === null ? "" : `lease ${formatSpan(left)}`,
    beats > 0 ? `${beats} ${beats === 1 ? "heartbeat" : "heartbeats"} late` : "",
    rack === "" || rack.toLowerCase().startsWith("rack") ? rack : `rack ${rack}`,
    name === board.head.leader ? "leads" : board.head.voters.includes(name) ? "votes" : "",
  ];
  return parts.filter((part) => part !== "").join(" · ");
}

/** A time that people compare: `42 s`, `3:07`, `1:02:03`, `2 d 3 h`. */
export function formatSpan(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value: number) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)}`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor(whole / 3600) % 24} h`;
}

function codeOf(state: string): number {
  const code = STATES.indexOf(state as HostState);
  return code < 0 ? UNKNOWN : code;
}

function spread<T>(runs: { readonly values: readonly T[]; readonly counts: readonly number[] }, put: (value: T, first: number, end: number) => void): void {
  let first = 0;
  runs.values.forEach((value, at) => {
    const end = first + (runs.counts[at] ?? 0);
    put(value, first, end);
    first = end;
  });
}

function moments(runs: NumberRuns, count: number): Float64Array {
  const column = new Float64Array(count);
  spread(runs, (value, first, end) => column.fill(value ?? Number.NaN, first, end));
  return column;
}

