// One recording: who made it, what is missing from it, the timeline, and the table by kind.
//
// The chosen kind, the chosen event and the zoom are in the address (`kind`, `event`, `from`, `to`),
// so a copied link shows the same thing and a reload loses nothing.

import { formatCount, formatDuration, formatPlural, formatWhen, shellWord, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { EmptyState, Outcome } from "../part/state";
import { addressRoute, formatRoute, go, replaceQuery } from "../route";
import { runAddress } from "../run/address";
import { kindColours } from "../timeline/colour";
import type { Range } from "../timeline/range";
import { recordingQuestion, type Recording } from "../timeline/recording";
import { Timeline } from "../timeline/timeline";
import { EventPanel } from "./eventpanel";
import { KindTable } from "./kindtable";

type Query = ReadonlyMap<string, string>;

export function RecordingPage(props: { name: string; query: Query }) {
  const run = props.query.get("run") ?? null;
  const { loaded, again } = useLoaded(recordingQuestion(props.name, run));
  useKeys("This page", [
    { keys: "r", says: "Load the recording again", run: again },
    { keys: "u", says: "Back to the list of recordings", run: () => go(["events"]) },
  ]);
  return (
    <>
      <p class="crumb">
        <a href={formatRoute(["events"])}>Events</a>
        {run !== null && (
          <>
            {" / "}
            <a href={addressRoute(runAddress(run))}>{visible(run)}</a>
          </>
        )}
      </p>
      <h1 class="file-name">{visible(props.name)}</h1>
      <Outcome of={loaded} again={again} show={(one) => <Contents recording={one} query={props.query} />} />
    </>
  );
}

function Contents(props: { recording: Recording; query: Query }) {
  const { recording, query } = props;
  const kind = query.get("kind") ?? null;
  const colours = kindColours(recording.kinds);
  const event = wholeNumber(query.get("event"));
  const chosen = event !== null && event < recording.timeline.kind.length ? event : null;
  const chooseKind = (name: string | null) => replaceQuery(new Map([["kind", name]]));
  return (
    <>
      <Origin recording={recording} />
      <Notices recording={recording} />
      {recording.event_count === 0 ? (
        <EmptyState title="This recording holds no events">
          <p>
            The process started to record, and recorded nothing that is on disk yet. Press <kbd>r</kbd> to look again.
          </p>
        </EmptyState>
      ) : (
        <>
          <Timeline recording={recording} colours={colours} kind={kind} chosen={chosen} asked={askedRange(query)} />
          {chosen !== null && <EventPanel recording={recording} index={chosen} />}
          <KindTable recording={recording} colours={colours} chosen={kind} choose={chooseKind} />
        </>
      )}
      <div class="foot">
        <Command text={`penstock events ${shellWord(recording.path)} --json`} />
      </div>
    </>
  );
}

function Origin(props: { recording: Recording }) {
  const { process, event_count, length_ns } = props.recording;
  const argv = Array.isArray(process["argv"]) ? process["argv"].map((word) => shellWord(String(word))).join(" ") : "";
  const started_ms = Number(process["started_wall_ns"]) / 1e6;
  return (
    <>
      <p class="lead">
        {event_count === 0 ? "No events" : `${formatPlural(event_count, "event")} in ${formatDuration(length_ns)}`}, from process{" "}
        {visible(String(process["pid"]))} on {visible(String(process["host"]))}, started {formatWhen(started_ms)}.
      </p>
      {argv !== "" && <p class="argv">{visible(argv)}</p>}
    </>
  );
}

function Notices(props: { recording: Recording }) {
  const { lost, torn_bytes, closed, event_count, timeline, kinds_left_out } = props.recording;
  const drawn = timeline.kind.length;
  const notices = [
    lost > 0 && `${formatPlural(lost, "event")} ${lost === 1 ? "was" : "were"} lost: the recorder had no room for them.`,
    torn_bytes > 0 &&
      `The file ends in the middle of a frame, as after a kill: ${formatPlural(torn_bytes, "byte")} cannot be read.`,
    !closed && torn_bytes === 0 && "The recorder has not closed this file: it still records, or was killed.",
    drawn < event_count &&
      `The timeline shows the first ${formatCount(drawn)} of ${formatPlural(event_count, "event")} in the file. The table counts all of them.`,
    kinds_left_out > 0 && `The table leaves out ${formatPlural(kinds_left_out, "kind")} that took the least time.`,
  ].filter((notice) => notice !== false);
  if (notices.length === 0) return null;
  return (
    <ul class="notices">
      {notices.map((notice) => (
        <li key={notice}>{notice}</li>
      ))}
    </ul>
  );
}

function askedRange(query: Query): Range | null {
  const from_ns = wholeNumber(query.get("from"));
  const to_ns = wholeNumber(query.get("to"));
  return from_ns !== null && to_ns !== null && from_ns < to_ns ? { from_ns, to_ns } : null;
}

function wholeNumber(text: string | undefined): number | null {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : null;
}
