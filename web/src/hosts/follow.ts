// Hosts, live: the board once, and then what has moved, twice a second while somebody looks.

import { useEffect, useRef, useState } from "preact/hooks";

import { question, wordsOf } from "../ask";
import type { Loaded } from "../load";
import { applyMoves, boardOf, type Board } from "./board";
import { later, type Playback } from "./playback";

/** Between two questions while all is well. */
const PAUSE_MS = 400;
/** The same of a job that is played. */
const FRAME_MS = 150;
/** After failures it is asked later, at most so much. */
const PAUSE_MAX_MS = 30_000;

/** A board, and what of it moved last; a new object with each answer. */
export interface Live {
  readonly board: Board;
  /** Places that moved; null where all of it is new. */
  readonly moved: readonly number[] | null;
  /** Why there is nothing newer; empty when all is well. */
  readonly problem: string;
}

export interface Followed {
  readonly loaded: Loaded<Live>;
  readonly playback: Playback | null;
  readonly play: (change: (playback: Playback) => Playback) => void;
  readonly again: () => void;
}

/** Follows a job. A job that is played stands still at `at_s` where that is given, and begins at its beginning else. */
export function useHosts(job: string, at_s: number | null): Followed {
  const [loaded, setLoaded] = useState<Loaded<Live>>({ phase: "loading" });
  const [playback, setPlayback] = useState<Playback | null>(null);
  const [round, setRound] = useState(0);
  const played = useRef<Playback | null>(null);
  const hurry = useRef<() => void>(() => undefined);
  useEffect(() => {
    const request = new AbortController();
    played.current = at_s === null ? null : { position_s: at_s, speed: 1, isPaused: true };
    setLoaded({ phase: "loading" });
    void follow(job, request.signal, played, hurry, setLoaded, setPlayback);
    return () => request.abort();
  }, [job, round]);
  const play = (change: (playback: Playback) => Playback) => {
    if (played.current === null) return;
    played.current = change(played.current);
    setPlayback(played.current);
    hurry.current();
  };
  return { loaded, playback, play, again: () => setRound((number) => number + 1) };
}

interface Box<T> {
  current: T;
}

async function follow(job: string, signal: AbortSignal, played: Box<Playback | null>, hurry: Box<() => void>, show: (loaded: Loaded<Live>) => void, showPlayback: (playback: Playback | null) => void): Promise<void> {
  const momentOf = () => (played.current === null ? null : Math.round(1000 * played.current.position_s));
  let board: Board | null = null;
  let isPlayed = false;
  let asked: number | null = null;
  let failures = 0;
  let shownAt = performance.now();
  while (!signal.aborted) {
    try {
      if (board === null) {
        // What stands still is asked for once.
        asked = momentOf();
        const answer = await question("hosts/board", { job, moment: asked }).ask(signal);
        performance.mark("hosts-data");
        board = boardOf(answer);
        if (answer.head.length_s === null) played.current = null;
        else if (!isPlayed) {
          isPlayed = true;
          played.current = { position_s: played.current?.position_s ?? 0, speed: answer.head.speed, isPaused: played.current?.isPaused ?? false };
          showPlayback(played.current);
        }
        show({ phase: "ready", value: { board, moved: null, problem: board.head.problem } });
      } else if (document.visibilityState === "visible" && (played.current === null || momentOf() !== asked)) {
        asked = momentOf();
        const moves = await question("hosts/moves", { job, stamp: board.stamp, mark: board.events.mark, moment: asked }).ask(signal);
        const moved = applyMoves(board, moves);
        if (moved === null) {
          board = null;
          continue;
        }
        show({ phase: "ready", value: { board, moved, problem: board.head.problem } });
      }
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      failures += 1;
      asked = null;
      if (board === null) {
        show({ phase: "failed", ...wordsOf(error) });
        return;
      }
      show({ phase: "ready", value: { board, moved: [], problem: wordsOf(error).message } });
    }
    await rest(played.current === null ? Math.min(PAUSE_MS * 2 ** failures, PAUSE_MAX_MS) : FRAME_MS * 2 ** Math.min(failures, 7), signal, hurry);
    const now = performance.now();
    if (played.current !== null && board !== null) {
      played.current = later(played.current, (now - shownAt) / 1000, board.head.next_s, board.head.length_s ?? 0);
      showPlayback(played.current);
    }
    shownAt = now;
  }
}

/** Waits, unless there is a hurry. */
function rest(ms: number, signal: AbortSignal, hurry: Box<() => void>): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    hurry.current = () => {
      clearTimeout(timer);
      done();
    };
    signal.addEventListener("abort", hurry.current, { once: true });
  });
}
