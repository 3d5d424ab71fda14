// How an imagined job is played: pause, speed, and where.

import { useKeys } from "../keys";
import { faster, formatMoment, SPEEDS, type Playback } from "./playback";

interface PlayerProps {
  readonly playback: Playback;
  readonly length_s: number;
  readonly next_s: number | null;
  readonly play: (change: (playback: Playback) => Playback) => void;
}

export function Player(props: PlayerProps) {
  const { playback, length_s, next_s, play } = props;
  const pause = () => play((now) => ({ ...now, isPaused: !now.isPaused }));
  const next = () => next_s !== null && play((now) => ({ ...now, position_s: next_s }));
  useKeys("This page", [
    { keys: "p", says: "Pause, or play on", run: pause },
    { keys: "+", says: "Play faster", run: () => play((now) => faster(now, 1)) },
    { keys: "-", says: "Play slower", run: () => play((now) => faster(now, -1)) },
    { keys: "n", says: "Go to what happens next", run: next },
  ]);
  const speeds = SPEEDS.includes(playback.speed) ? SPEEDS : [...SPEEDS, playback.speed].sort((one, two) => one - two);
  return (
    <div class="host-player" role="group" aria-label="Playback">
      <button type="button" onClick={pause} title="Pause, or play on (p)">
        {playback.isPaused ? "Play" : "Pause"}
      </button>
      <button type="button" onClick={next} disabled={next_s === null} title="What happens next (n)">
        Next
      </button>
      <input
        type="range"
        min="0"
        max={String(Math.ceil(length_s))}
        step="1"
        value={String(Math.round(playback.position_s))}
        aria-label="Moment"
        aria-valuetext={formatMoment(playback.position_s)}
        onInput={(event) => {
          const position_s = Number(event.currentTarget.value);
          play((now) => ({ ...now, position_s }));
        }}
      />
      <span class="number">
        {formatMoment(playback.position_s)} <span class="soft">of {formatMoment(length_s)}</span>
      </span>
      <label class="small">
        <span class="soft">Speed</span>{" "}
        <select
          aria-label="Speed"
          value={String(playback.speed)}
          onChange={(event) => {
            const speed = Number(event.currentTarget.value);
            play((now) => ({ ...now, speed }));
          }}
        >
          {speeds.map((speed) => (
            <option key={speed} value={String(speed)}>
              {speed}×
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}
