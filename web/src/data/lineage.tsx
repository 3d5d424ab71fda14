// What a version came from and what was made from it, as a graph: parents on the left, children on the right.

import { question } from "../ask";
import { formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import { addressRoute } from "../route";
import type { LineageGraph, LineagePlace } from "../wire/types";
import { BOX, layOutPlaces, type Spot } from "./placement";

export function LineageView(props: { address: string }) {
  const { loaded, again } = useLoaded(question("lineage", { at: props.address }));
  return <Outcome of={loaded} again={again} show={(graph) => <Drawing graph={graph} />} />;
}

function Drawing(props: { graph: LineageGraph }) {
  const { graph } = props;
  const { spots, width, height } = layOutPlaces(graph.places);
  return (
    <>
      <p class="lead">
        {graph.places.length === 1 ? "Nothing is recorded above or below this version." : "From left to right: what it came from, the version, what was made from it."}
      </p>
      <div class="wide graph">
        <svg viewBox={`-4 -4 ${width + 8} ${height + 8}`} width={width + 8} height={height + 8} role="img" aria-label="Lineage">
          {graph.arrows.map(([from, to]) => (
            <Arrow key={`${from} ${to}`} from={spots.get(from)} to={spots.get(to)} />
          ))}
          {graph.places.map((place) => (
            <Box key={place.address} place={place} spot={spots.get(place.address)} own={place.address === graph.at} />
          ))}
        </svg>
      </div>
      {graph.left_out > 0 && <p class="cut">{formatPlural(graph.left_out, "more version")} are not drawn.</p>}
      <div class="foot">
        <Command text={graph.command} />
      </div>
    </>
  );
}

function Arrow(props: { from: Spot | undefined; to: Spot | undefined }) {
  const { from, to } = props;
  if (from === undefined || to === undefined) return null;
  const [x, y, u, v] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = BOX.across / 2;
  return (
    <g class="arrow">
      <path d={`M${x} ${y}C${x + bend} ${y} ${u - bend} ${v} ${u - 5} ${v}`} />
      <path class="tip-of" d={`M${u} ${v}l-8 -4v8z`} />
    </g>
  );
}

function Box(props: { place: LineagePlace; spot: Spot | undefined; own: boolean }) {
  const { place, spot, own } = props;
  if (spot === undefined) return null;
  const name = place.known ? place.address : "not in this registry";
  const drawn = (
    <g class={`place${own ? " own" : ""}${place.known ? "" : " foreign"}`} transform={`translate(${spot.x} ${spot.y})`}>
      <title>{visible(place.address)}</title>
      <rect width={BOX.width} height={BOX.height} rx="7" />
      <text x="12" y="19">
        {visible(name.length > 30 ? `${name.slice(0, 14)}…${name.slice(-14)}` : name)}
      </text>
      <text x="12" y="35" class="digest">
        {place.digest.slice(0, 15)}
      </text>
    </g>
  );
  return place.known && !own ? (
    <a href={addressRoute(place.address, new Map([["tab", "lineage"]]))} data-row>
      {drawn}
    </a>
  ) : (
    drawn
  );
}
