// An event in words: when it was and how long it took.

import { formatDuration } from "../format";
import type { Recording } from "./recording";

export function spanWords(recording: Recording, index: number): string {
  const { time_ns, duration_ns, open } = recording.timeline;
  const at = `at ${formatDuration(time_ns[index] ?? 0)}`;
  if (open.has(index)) return `${at}, never ended`;
  const duration = duration_ns[index] ?? -1;
  return duration < 0 ? `${at}, a point in time` : `${at}, took ${formatDuration(duration)}`;
}
