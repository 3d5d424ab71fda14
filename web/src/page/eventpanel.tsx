// The event that the reader chose in the timeline, with its fields. Fields are asked for one event at
// a time: with all of them, a recording would be ten times as large on the wire.

import { question } from "../ask";
import { visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { replaceQuery } from "../route";
import type { Recording } from "../timeline/recording";
import { spanWords } from "../timeline/words";
import type { EventDetail } from "../wire/types";

export function EventPanel(props: { recording: Recording; index: number }) {
  const { recording, index } = props;
  const { loaded, again } = useLoaded(question("events/{name}/{index}", { name: recording.name, index, run: recording.run }));
  const { timeline } = recording;
  const kind = timeline.names[timeline.kind[index] ?? 0] ?? "";
  const close = () => replaceQuery(new Map([["event", null]]));
  useKeys("Timeline", [{ keys: "Escape", says: "Let go of the chosen event", run: close }]);
  return (
    <section class="panel" aria-label="Chosen event">
      <div class="panel-head">
        <h2>{visible(kind)}</h2>
        <button type="button" class="quiet" onClick={close} aria-label="Close">
          ✕
        </button>
      </div>
      <p class="soft">
        {spanWords(recording, index)} · thread {timeline.thread[index]}
      </p>
      <Outcome of={loaded} again={again} show={(event) => <FieldList event={event} same={isSame(recording, index, event)} />} />
    </section>
  );
}

function FieldList(props: { event: EventDetail; same: boolean }) {
  const fields = Object.entries(props.event.fields);
  if (!props.same) return <p class="soft">The recording has grown since this page was loaded; press r to load it again.</p>;
  if (fields.length === 0) return <p class="soft">It was recorded without fields.</p>;
  return (
    <>
      <dl class="fields">
        {fields.map(([name, value]) => (
          <div key={name}>
            <dt>{visible(name)}</dt>
            <dd>{visible(typeof value === "string" ? value : JSON.stringify(value))}</dd>
          </div>
        ))}
      </dl>
      {props.event.cut && <p class="soft">The recorder shortened this event to keep it small.</p>}
    </>
  );
}

/** The file may have grown in between, and an index then means another event. */
function isSame(recording: Recording, index: number, event: EventDetail): boolean {
  const { names, kind, time_ns } = recording.timeline;
  return names[kind[index] ?? 0] === event.kind && time_ns[index] === event.time_ns;
}
