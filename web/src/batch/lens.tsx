// The rank lens: which rows each lane of the step gets, what stands in two places, and whether ranks that must get the
// same do.

import { useState } from "preact/hooks";

import { asFields, asList, asNumber, asText } from "../decode";
import { formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { addressRoute, replaceQuery } from "../route";
import { formatPlace, type Place } from "./place";

interface LaneRow {
  readonly content: string;
  readonly documents: readonly string[];
  readonly count: number;
}

interface Repeat {
  readonly words: string;
  readonly places: readonly (readonly number[])[];
}

interface Lens {
  readonly lanes: readonly { readonly lane: string; readonly digest: string; readonly rows: readonly LaneRow[] }[];
  readonly addsUp: boolean;
  readonly sameRows: readonly (readonly (readonly number[])[])[];
  readonly sameRowsCount: number;
  readonly repeats: readonly Repeat[];
  readonly repeatsCount: number;
  readonly rankCount: number;
  /** Lanes whose ranks differ, in words. */
  readonly unequal: readonly string[];
}

export function LensView(props: { place: Place; lanes: number; equal: number }) {
  const { place, lanes, equal } = props;
  const address = formatPlace({ ...place, lane: null, row: null, token: null });
  const [loaded, again] = useLoaded(`api/lanes?address=${encodeURIComponent(address)}&lanes=${lanes}&equal=${equal}`, readLens);
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

function Lanes(props: { lens: Lens; place: Place; equal: number }) {
  const { lens, place, equal } = props;
  const flagged = new Set([...lens.sameRows.flat(), ...lens.repeats.flatMap((one) => one.places)].map((spot) => spot.join(" ")));
  const words: [boolean, string][] = [
    [lens.addsUp, lens.addsUp ? "The lanes add up to the step: nothing is lost, nothing comes twice." : "The digests of the lanes do not add up to the step's."],
    [lens.sameRowsCount === 0, lens.sameRowsCount === 0 ? "No two rows hold the same." : `${formatPlural(lens.sameRowsCount, "content")} stand in more than one row.`],
    [
      lens.repeatsCount === 0,
      lens.repeatsCount === 0
        ? "No tokens of a sample stand in two rows."
        : `${formatPlural(lens.repeatsCount, "stretch", "stretches")} of samples stand in more than one row: ${lens.repeats.slice(0, 5).map((one) => one.words).join(", ")}${lens.repeatsCount > 5 ? " …" : ""}`,
    ],
  ];
  if (equal > 1) {
    const good = lens.unequal.length === 0;
    words.push([good, good ? `All ${lens.rankCount} ranks that must agree do, each built on its own.` : `A stage is not deterministic: ${lens.unequal.join("; ")}.`]);
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
                  <span class="soft">{formatPlural(row.count, "document")}: {row.documents.join(", ")}{row.count > row.documents.length ? " …" : ""}</span>
                </li>
              ))}
            </ol>
          </section>
        ))}
      </div>
    </>
  );
}

function readLens(value: unknown): Lens {
  const lens = asFields(value);
  const pairs = (one: unknown) => asList(one).map((pair) => asList(pair).map(asNumber));
  return {
    addsUp: lens["adds_up"] === true,
    sameRows: asList(lens["same_rows"]).map(pairs),
    sameRowsCount: asNumber(lens["same_rows_count"]),
    repeats: asList(lens["repeats"]).map((one) => {
      const repeat = asFields(one);
      return { words: visible(`${asText(repeat["source"])} ${String(repeat["sample"])}`), places: pairs(repeat["places"]) };
    }),
    repeatsCount: asNumber(lens["repeats_count"]),
    rankCount: asNumber(asFields(lens["ranks"])["count"]),
    unequal: asList(asFields(lens["ranks"])["unequal"]).map((one) => {
      const lane = asFields(one);
      const sides = Object.values(asFields(lane["ranks"])).map((ranks) => asList(ranks).map(asText).join(" "));
      return `lane ${asText(lane["lane"])}: ranks ${sides.join(" against ")}`;
    }),
    lanes: asList(lens["lanes"]).map((one) => {
      const lane = asFields(one);
      return {
        lane: asText(lane["lane"]),
        digest: asText(lane["digest"]),
        rows: asList(lane["rows"]).map((each) => {
          const row = asFields(each);
          return { content: asText(row["content"]), documents: asList(row["documents"]).map((pair) => visible(asList(pair).map(String).join(" "))), count: asNumber(row["document_count"]) };
        }),
      };
    }),
  };
}
