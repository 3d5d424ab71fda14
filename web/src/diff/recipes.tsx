// Two recipes: which of their fields differ, and the first step at which their batches do. Asked for by a click, because
// steps are built one after another until two differ.

import { useState } from "preact/hooks";

import { formatPlace, parsePlace } from "../batch/place";
import { asFields, asList, asNumber, asText, orNull } from "../decode";
import { formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { formatRoute } from "../route";

interface Found {
  readonly fields: readonly (readonly [string, readonly string[]])[];
  readonly compared: number;
  readonly first: number | null;
}

export function RecipeDiff(props: { a: string; b: string }) {
  const [asked, setAsked] = useState(false);
  if (parsePlace(props.a).stream === parsePlace(props.b).stream) return null;
  return asked ? (
    <Answer a={props.a} b={props.b} />
  ) : (
    <p>
      <button type="button" onClick={() => setAsked(true)}>
        Where do the recipes part?
      </button>
    </p>
  );
}

function Answer(props: { a: string; b: string }) {
  const [loaded, again] = useLoaded(`api/recipes?${new URLSearchParams(props)}`, readFound);
  return <Outcome of={loaded} again={again} show={(found) => <Words {...props} found={found} />} />;
}

function Words(props: { a: string; b: string; found: Found }) {
  const { found } = props;
  const at = (address: string) => formatPlace({ ...parsePlace(address), step: found.first, row: null, token: null });
  return (
    <div class="recipes">
      {found.fields.length === 0 && <p class="soft">All fields that decide batches are equal.</p>}
      <dl class="fields">
        {found.fields.map(([name, sides]) => (
          <div key={name}>
            <dt>{visible(name)}</dt>
            <dd>{sides.map(visible).join("   →   ")}</dd>
          </div>
        ))}
      </dl>
      <p>
        {found.first === null ? (
          `${formatPlural(found.compared, "step")} compared, all equal.`
        ) : (
          <>
            The first step that differs is{" "}
            <a href={formatRoute(["diff"], new Map([["a", at(props.a)], ["b", at(props.b)]]))}>step {formatCount(found.first)}</a>, after {formatPlural(found.compared - 1, "equal one")}.
          </>
        )}
      </p>
    </div>
  );
}

function readFound(value: unknown): Found {
  const found = asFields(value);
  return {
    fields: Object.entries(asFields(found["fields"])).map(([name, sides]) => [name, asList(sides).map(asText)] as const),
    compared: asNumber(found["compared_steps"]),
    first: orNull(found["first_step"], asNumber),
  };
}
