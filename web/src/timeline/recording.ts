// A recording as the timeline draws it: columns of numbers instead of lists, so that a canvas reads them without boxes.

import { question, mapped, type Question } from "../ask";
import type { RecordingDetail } from "../wire/types";

/** Events as columns in file order; the position in a column is the event's index. */
export interface EventColumns {
  readonly names: readonly string[];
  readonly kind: Uint32Array;
  readonly thread: Float64Array;
  readonly time_ns: Float64Array;
  /** -1 for a point, and for a span that never ended (those are in `open`). */
  readonly duration_ns: Float64Array;
  readonly open: ReadonlySet<number>;
}

export interface Recording extends Omit<RecordingDetail, "timeline"> {
  readonly timeline: EventColumns;
  /** The run that it is of; null for the events directory. */
  readonly run: string | null;
}

export function recordingQuestion(name: string, run: string | null): Question<Recording> {
  return mapped(question("events/{name}", { name, run }), (detail) => readRecording(detail, run));
}

export function readRecording(detail: RecordingDetail, run: string | null = null): Recording {
  const { names, kind, thread, time_ns, duration_ns, open } = detail.timeline;
  return {
    ...detail,
    run,
    timeline: {
      names,
      kind: Uint32Array.from(kind),
      thread: Float64Array.from(thread),
      time_ns: Float64Array.from(time_ns),
      duration_ns: Float64Array.from(duration_ns, (duration) => duration ?? -1),
      open: new Set(open),
    },
  };
}
