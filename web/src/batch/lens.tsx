// The rank lens: which rows each lane of the step gets, what stands in two places, and whether ranks that must get the
// same do.

import { useState } from "preact/hooks";

import { question } from "../ask";
import { formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { addressRoute, replaceQuery } from "../route";
import type { LaneLens, LensRepeat, LensRow, UnequalRanks } from "../wire/types";
import { formatPlace, type Place } from "./place";

export function LensView(props: { place: Place; lanes: number; equal: number }) {
  const { place, lanes, equal } = props;
  const address = formatPlace({ ...place, lane: null, row: null, token: null });
  const { loaded, again } = useLoaded(question("lanes", { address, lanes, equal }));
  return (
    <section class="lens">
      <Asking lanes={lanes} equal={equal} />
      <Outcome of={loaded} again={again} show={(lens) => <Lanes lens={lens} place={place} equal={equal} />} />
    </section>
  );
}

function Asking(props: { lanes: number; equal: number }) {
  const [lanes, setLanes] = useState(String(props.lanes));
  const [equal, setEqual] = useState(String(props.equal));
  const apply = (event: Event) => {
    event.preventDefault();
    replaceQuery(new Map([["lanes", lanes], ["equal", equal === "1" ? null : equal]]));
  };
  return (
    <form class="lens-asking" onSubmit={apply}>
      <label>
        lanes <input inputMode="numeric" value={lanes} onInput={(event) => setLanes(event.currentTarget.value)} />
      </label>
      <label>
        ranks that share a lane <input inputMode="numeric" value={equal} onInput={(event) => setEqual(event.currentTarget.value)} />
      </label>
      <button type="submit">Look</button>
    </form>
  );
}

function Lanes(props: { lens: LaneLens; place: Place; equal: number }) {
  const { lens, place, equal } = props;
  const flagged = new Set([...lens.same_rows.flat(), ...lens.repeats.flatMap((one) => one.places)].map((spot) => spot.join(" ")));
  const words: [boolean, string][] = [
    [lens.adds_up, lens.adds_up ? "The lanes add up to the step: nothing is lost, nothing comes twice." : "The digests of the lanes do not add up to the step's."],
    [lens.same_rows_count === 0, lens.same_rows_count === 0 ? "No two rows hold the same." : `${formatPlural(lens.same_rows_count, "content")} stand in more than one row.`],
    [
      lens.repeats_count === 0,
      lens.repeats_count === 0
        ? "No tokens of a sample stand in two rows."
        : `${formatPlural(lens.repeats_count, "stretch", "stretches")} of samples stand in more than one row: ${lens.repeats.slice(0, 5).map(repeatWords).join(", ")}${lens.repeats_count > 5 ? " …" : ""}`,
    ],
  ];
  if (equal > 1) {
    const good = lens.ranks.unequal.length === 0;
    words.push([good, good ? `All ${lens.ranks.count} ranks that must agree do, each built on its own.` : `A stage is not deterministic: ${lens.ranks.unequal.map(unequalWords).join("; ")}.`]);
  }
  return (
    <>
      <ul class="verdicts">
        {words.map(([good, text]) => (
          <li key={text} class={good ? "ok" : "fail"}>
            <span aria-hidden="true">{good ? "✓" : "✕"}</span> {text}
          </li>
        ))}
      </ul>
      <div class="lane-grid">
        {lens.lanes.map((lane, number) => (
          <section key={lane.lane} class="lane">
            <h3>
              <a href={addressRoute(formatPlace({ ...place, lane: lane.lane, row: null, token: null }))} data-row>
                lane {lane.lane}
              </a>
              <span class="soft mono">{lane.digest.slice(0, 10)}</span>
              {equal > 1 && <span class="soft">ranks {number * equal}–{number * equal + equal - 1}</span>}
            </h3>
            <ol start={0}>
              {lane.rows.map((row, at) => (
                <li key={at} class={flagged.has(`${number} ${at}`) ? "flagged" : undefined}>
                  <a href={addressRoute(formatPlace({ ...place, lane: lane.lane, row: at, token: null }))}>row {at}</a>{" "}
                  <span class="mono soft">{row.content === "" ? "padding" : row.content.replace("b3:", "").slice(0, 8)}</span>{" "}
                  <span class="soft">{documentWords(row)}</span>
                </li>
              ))}
            </ol>
          </section>
        ))}
      </div>
    </>
  );
}

function repeatWords(repeat: LensRepeat): string {
  return visible(`${repeat.source} ${repeat.sample}`);
}

function unequalWords(lane: UnequalRanks): string {
  const sides = Object.values(lane.ranks).map((ranks) => ranks.join(" "));
  return `lane ${lane.lane}: ranks ${sides.join(" against ")}`;
}

function documentWords(row: LensRow): string {
  const named = row.documents.map((document) => visible(document.join(" "))).join(", ");
  return `${formatPlural(row.document_count, "document")}: ${named}${row.document_count > row.documents.length ? " …" : ""}`;
}
