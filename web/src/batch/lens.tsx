// The rank lens: which rows each lane of the step gets, what stands in two places, and whether ranks that must get the
// same do.

import { useState } from "preact/hooks";

import { asFields, asList, asNumber, asText } from "../decode";
import { formatCount, formatPlural } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { addressRoute, replaceQuery } from "../route";
import { formatPlace, type Place } from "./place";

interface LaneRow {
  readonly content: string;
  readonly documents: readonly (readonly number[])[];
  readonly count: number;
}

interface Lens {
  readonly lanes: readonly { readonly lane: string; readonly digest: string; readonly rows: readonly LaneRow[] }[];
  readonly addsUp: boolean;
  readonly sameRows: readonly (readonly (readonly number[])[])[];
  readonly sameRowsCount: number;
  readonly shared: readonly { readonly sample: readonly number[]; readonly places: readonly (readonly number[])[] }[];
  readonly sharedCount: number;
  readonly ranks: readonly { readonly rank: number; readonly lane: number; readonly equal: boolean; readonly digest: string }[];
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
  const flagged = new Set([...lens.sameRows.flat(), ...lens.shared.flatMap((one) => one.places)].map((spot) => spot.join(" ")));
  const wrong = lens.ranks.filter((rank) => !rank.equal);
  const words: [boolean, string][] = [
    [lens.addsUp, lens.addsUp ? "The lanes add up to the step: nothing is lost, nothing comes twice." : "The digests of the lanes do not add up to the step's."],
    [lens.sameRowsCount === 0, lens.sameRowsCount === 0 ? "No two rows hold the same tokens." : `${formatPlural(lens.sameRowsCount, "content")} stand in more than one row.`],
    [lens.sharedCount === 0, lens.sharedCount === 0 ? "No stretch of a sample stands in two rows." : `${formatPlural(lens.sharedCount, "stretch")} of samples stand in more than one row.`],
  ];
  if (equal > 1) words.push([wrong.length === 0, wrong.length === 0 ? `All ${lens.ranks.length} ranks that must agree do, each built on its own.` : `Ranks ${wrong.map((rank) => rank.rank).join(", ")} differ from the others of their lane: a stage is not deterministic.`]);
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
                  <span class="soft">{formatPlural(row.count, "document")}: {row.documents.map((one) => formatCount(one[1] ?? 0)).join(", ")}{row.count > row.documents.length ? " …" : ""}</span>
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
    shared: asList(lens["shared_samples"]).map((one) => {
      const shared = asFields(one);
      return { sample: asList(shared["sample"]).map(asNumber), places: pairs(shared["places"]) };
    }),
    sharedCount: asNumber(lens["shared_samples_count"]),
    ranks: asList(lens["ranks"]).map((one) => {
      const rank = asFields(one);
      return { rank: asNumber(rank["rank"]), lane: asNumber(rank["lane"]), digest: asText(rank["digest"]), equal: rank["equal"] === true };
    }),
    lanes: asList(lens["lanes"]).map((one) => {
      const lane = asFields(one);
      return {
        lane: asText(lane["lane"]),
        digest: asText(lane["digest"]),
        rows: asList(lane["rows"]).map((each) => {
          const row = asFields(each);
          return { content: asText(row["content"]), documents: pairs(row["documents"]), count: asNumber(row["document_count"]) };
        }),
      };
    }),
  };
}
