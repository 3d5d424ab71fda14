// Rows that pass an expression. There is no index, so the server reads; one look is short, and a scan is look after look until the
// last row. Nothing runs on the server between two looks, so that stopping or leaving the page ends the scan.

import { useEffect, useRef, useState } from "preact/hooks";

import { question, wordsOf } from "../ask";
import type { FilteredPage, RowLine, VersionDetail } from "../wire/types";

interface Found {
  readonly rows: readonly RowLine[];
  readonly looked_at: number;
  readonly next: number | null;
  readonly failed: number;
  readonly reason: string;
  readonly problem: string;
  readonly busy: boolean;
  /** Whether look follows look by itself. */
  readonly scanning: boolean;
}

export interface FilterState extends Found {
  readonly further: () => void;
  readonly scan: () => void;
  readonly stop: () => void;
}

/** Rows that pass after which one look ends. */
const LOOK_ROWS = 200;
/** Rows that pass and are kept before a scan pauses: more than anybody reads, and little enough for a page. */
export const PASSING_MAX = 10_000;
/** Before the first look. */
const NOTHING: Found = { rows: [], looked_at: 0, next: 0, failed: 0, reason: "", problem: "", busy: true, scanning: false };

export function useFilter(version: VersionDetail, where: string): FilterState {
  const [state, setState] = useState<Found>(NOTHING);
  const request = useRef<AbortController | null>(null);
  const look = (before: Found, scanning: boolean) => {
    request.current?.abort();
    const asking = (request.current = new AbortController());
    const limit = before.rows.length + PASSING_MAX;
    const next = (so: Found): void => {
      setState({ ...so, busy: true, scanning });
      question("filter", { at: version.address, where, start: so.next ?? 0, count: LOOK_ROWS })
        .ask(asking.signal)
        .then((page) => {
          const now = joined(so, page);
          if (scanning && now.next !== null && now.rows.length < limit) next(now);
          else setState(now);
        })
        .catch((error: unknown) => {
          if (!asking.signal.aborted) setState({ ...so, busy: false, scanning: false, problem: wordsOf(error).message });
        });
    };
    next(before);
  };
  useEffect(() => {
    if (where !== "") look(NOTHING, false);
    return () => request.current?.abort();
  }, [version.address, where]);
  return {
    ...state,
    further: () => look(state, false),
    scan: () => look(state, true),
    stop: () => {
      request.current?.abort();
      setState((now) => ({ ...now, busy: false, scanning: false }));
    },
  };
}

function joined(before: Found, found: FilteredPage): Found {
  return {
    rows: [...before.rows, ...found.rows],
    looked_at: before.looked_at + found.looked_at,
    next: found.next,
    failed: before.failed + found.failed,
    reason: before.reason || found.reason,
    problem: "",
    busy: false,
    scanning: false,
  };
}
