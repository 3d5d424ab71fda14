// Two recipes: which of their fields differ, and the first step at which their batches do. Asked for by a click, because
// steps are built one after another until two differ.

import { useState } from "preact/hooks";

import { question } from "../ask";
import { formatPlace, parsePlace } from "../batch/place";
import { formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { formatRoute } from "../route";
import type { RecipeDifference } from "../wire/types";

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
  const { loaded, again } = useLoaded(question("recipes", { a: props.a, b: props.b }));
  return <Outcome of={loaded} again={again} show={(found) => <Words {...props} found={found} />} />;
}

function Words(props: { a: string; b: string; found: RecipeDifference }) {
  const { found } = props;
  const fields = Object.entries(found.fields);
  const at = (address: string) => formatPlace({ ...parsePlace(address), step: found.first_step, row: null, token: null });
  return (
    <div class="recipes">
      {fields.length === 0 && <p class="soft">All fields that decide batches are equal.</p>}
      <dl class="fields">
        {fields.map(([name, sides]) => (
          <div key={name}>
            <dt>{visible(name)}</dt>
            <dd>{sides.map(visible).join("   →   ")}</dd>
          </div>
        ))}
      </dl>
      <p>
        {found.first_step === null ? (
          `${formatPlural(found.compared_steps, "step")} compared, all equal.`
        ) : (
          <>
            The first step that differs is{" "}
            <a href={formatRoute(["diff"], new Map([["a", at(props.a)], ["b", at(props.b)]]))}>step {formatCount(found.first_step)}</a>, after {formatPlural(found.compared_steps - 1, "equal one")}.
          </>
        )}
      </p>
    </div>
  );
}
