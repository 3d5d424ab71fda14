// A run while it runs: what its ranks have in their hands, and what its training loop shows of its own arrays.

import { question } from "../ask";
import { formatCount, visible } from "../format";
import { useLoaded } from "../load";
import { replaceQuery } from "../route";

export function Live(props: { address: string; tap: string | null }) {
  const { loaded, again } = useLoaded(question("taps", { address: props.address }));
  if (loaded.phase !== "ready") return null;
  const { ranks, unequal, shown } = loaded.value;
  if (ranks.length + shown.length === 0) return null;
  const choose = (tap: string | null) => replaceQuery(new Map([["tap", tap]]));
  return (
    <p class="live">
      {ranks.map((rank) => (
        <span key={rank.name} class={rank.step === null || rank.equal ? "ok" : "fail"} title={`process ${rank.pid}, lane ${rank.lane}`}>
          rank {visible(rank.name)}: {rank.step === null ? "no batch yet" : `step ${formatCount(rank.step)}, ${rank.equal ? "as rebuilt here" : "other bits than rebuilt here"}`}
        </span>
      ))}
      {unequal.length > 0 && <span class="fail">ranks of one lane differ</span>}
      {shown.length > 0 && (
        <span class="soft">
          the loop shows{" "}
          {shown.map((name) => (
            <button key={name} type="button" class="tab" aria-pressed={name === props.tap} onClick={() => choose(name === props.tap ? null : name)}>
              {visible(name)}
            </button>
          ))}
        </span>
      )}
      <button type="button" class="link" onClick={again}>
        look again
      </button>
    </p>
  );
}
