// How an imagined job is played, as `penstock simulate --watch` plays it in a terminal: a position that moves with time, and jumps over quiet time. Pure.

/** How many times faster than life it may be played. */
export const SPEEDS: readonly number[] = [1, 2, 5, 10, 30, 60, 300, 1800, 3600];
/** Quiet time that is longer than this is jumped over; in seconds of whoever looks. */
const QUIET_S = 3;
/** How much of it is left before something happens. */
const LEAD_S = 1;

export interface Playback {
  readonly position_s: number;
  readonly speed: number;
  readonly isPaused: boolean;
}

/** Some time later, when the next thing happens at `next_s`; at the end it stands still. */
export function later(playback: Playback, elapsed_s: number, next_s: number | null, length_s: number): Playback {
  if (playback.isPaused) return playback;
  if (next_s === null) return { ...playback, position_s: length_s };
  const position = playback.position_s + elapsed_s * playback.speed;
  const jumped = next_s - position > QUIET_S * playback.speed ? next_s - LEAD_S * playback.speed : position;
  return { ...playback, position_s: Math.min(jumped, length_s) };
}

/** The same, so many speeds faster. */
export function faster(playback: Playback, by: number): Playback {
  const distances = SPEEDS.map((speed) => Math.abs(speed - playback.speed));
  const at = distances.indexOf(Math.min(...distances));
  return { ...playback, speed: SPEEDS[Math.min(Math.max(at + by, 0), SPEEDS.length - 1)] ?? playback.speed };
}

/** A moment of such a job: `12 d 03:04:05`. */
export function formatMoment(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value: number) => String(value).padStart(2, "0");
  const clock = `${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return whole >= 86_400 ? `${Math.floor(whole / 86_400)} d ${clock}` : clock;
}
